import { OpusDecoder, PcmDecoder, supportsOpus } from "./decode.js";
import { Player } from "./player.js";
import { Stream } from "./stream.js";

const at = (id) => document.getElementById(id);
const REPORT_MS = 1000;

let turn = null; // the turn being spoken or heard: { id, asked, captions, done }
let session = null;
let decoder = null;
let reported = 0;

const player = new Player(({ played, gaps, over }) => {
  if (!turn) return;
  showCaption(played);
  at("gaps").textContent = String(gaps);
  if (performance.now() - reported > REPORT_MS && turn.id && stream.open) {
    reported = performance.now();
    stream.send({ type: "playback", turn: turn.id, played_ms: played * 1000 });
  }
  turn.played = played;
  if (over) finish("Done.");
});

const opus = await supportsOpus();
const stream = new Stream({ format: opus ? "opus" : "pcm_s16le" }, { onMessage, onPacket, onState });

function onState(state, detail) {
  if (state === "open") {
    session = detail;
    const Decoder = opus ? OpusDecoder : PcmDecoder;
    decoder = new Decoder(detail.audio.pre_skip, (samples, rate) => player.push(samples, rate));
    fillVoices(detail.voices);
    at("speed").min = Math.max(0.5, detail.limits.min_speed);
    at("speed").max = Math.min(2, detail.limits.max_speed);
    say("Ready.");
  } else {
    session = null;
    turn = null;
    player.clear();
    buttons(false);
    say(detail ? `Disconnected (${detail}); connecting again …` : "Disconnected; connecting again …");
  }
}

function onMessage(message) {
  if (message.type === "error") {
    say(`${message.message} ${message.hint}`);
    if (message.request && message.request !== "turn.cancel") finish(null);
  }
  if (!turn) return;
  if (message.type === "turn.started") {
    turn.id = message.turn;
  } else if (message.turn === turn.id && message.type === "caption") {
    turn.captions.set(message.piece, message);
  } else if (message.turn === turn.id && message.type === "turn.done") {
    at("seconds").textContent = `${(message.ms / 1000).toFixed(1)} s`;
    if (!message.packets) finish("Nothing to speak.");
    else decoder.flush().then(() => player.complete());
  } else if (message.turn === turn.id && message.type === "turn.cancelled") {
    at("caption").textContent = message.spoken;
    finish(`Stopped after ${(message.heard_ms / 1000).toFixed(1)} s.`);
  }
}

function onPacket(packet) {
  if (!turn || packet.turn !== turn.id || turn.stopped) return;
  if (packet.position === 0) {
    at("first").textContent = `${Math.round(performance.now() - turn.asked)} ms`;
    say("Speaking …");
  }
  decoder.push(packet);
}

function showCaption(played) {
  const sample = played * session.audio.sample_rate;
  let current = null;
  for (const caption of turn.captions.values()) {
    if (caption.start_sample <= sample) current = caption;
  }
  if (current) at("caption").textContent = current.text;
}

async function speak() {
  const text = at("text").value;
  if (!text.trim() || !stream.open || !session) return;
  await player.start();
  player.clear();
  decoder.reset();
  turn = { id: null, asked: performance.now(), captions: new Map(), stopped: false, played: 0 };
  buttons(true);
  say("Waiting for the first sound …");
  stream.send({
    type: "session.update",
    voice: at("voice").value,
    speed: Number(at("speed").value),
  });
  stream.send({ type: "text.append", text });
  stream.send({ type: "turn.end" });
}

function stop() {
  if (!turn) return;
  turn.stopped = true;
  player.clear();
  decoder.reset();
  stream.send({ type: "turn.cancel", played_ms: turn.played * 1000 });
}

function finish(words) {
  turn = null;
  buttons(false);
  if (words) say(words);
}

function buttons(speaking) {
  at("speak").disabled = speaking;
  at("stop").disabled = !speaking;
}

function fillVoices(voices) {
  const chosen = at("voice").value;
  const names = ["default", ...voices.filter((voice) => voice !== "default")];
  at("voice").replaceChildren(...names.map((name) => new Option(name, name)));
  if (names.includes(chosen)) at("voice").value = chosen;
}

function say(words) {
  at("status").textContent = words;
}

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  speak();
});
at("stop").addEventListener("click", stop);
at("speed").addEventListener("input", () => {
  at("speed-value").textContent = Number(at("speed").value).toFixed(2);
});
stream.connect();
