// A voice session: turns of text in, speech out of the loudspeakers, across lost connections.

import { chooseFormat, makeDecoder, warmUp } from "./decoders.js";
import { Link } from "./link.js";
import { Turn } from "./turn.js";

const PLAYBACK_MS = 1000;
const ANSWER_MS = 2000;
const APPEND_UNITS = 2000;
const BACKLOG_SHARE = 0.6; // of the server's limit: beyond that, text waits here
let playerKeys = 0; // several sessions may share a player

/**
 * Events carry `detail`:
 * - `state` {state, started?, reason?}: of the connection, as `Link` has them
 * - `turn` {turn}: something about a turn changed (its state, captions, latencies)
 * - `packet` {turn, packet}: before it is decoded
 * - `samples` {turn, start, samples}: decoded, on the turn's clock
 * - `error` {code, message, hint, turn?}
 * - `flow` {paused}
 * - `lost` {turn}: the session is gone with this turn unfinished; `turn.unspoken` can be said anew
 * - `wire` {direction, message, bytes}
 */
export class VoiceSession extends EventTarget {
  /**
   * @param {import("./player.js").Player} player
   * @param {object} options `url`; `accessToken`, a function that gets one, asked before every
   *   session; and the fields of `session.start`, where `format` may be `auto`
   */
  constructor(player, { url, accessToken, format = "auto", ...start } = {}) {
    super();
    this.player = player;
    this.url = url ?? new URL("../", import.meta.url).href; // the gateway that serves this file
    this.wanted = { format, ...start };
    this.accessToken = accessToken;
    this.format = null;
    this.started = null;
    this.turns = []; // not over yet, in order
    this.starting = []; // without a number yet
    this.current = null;
    this.paused = false;
    this.outbox = []; // {turn, message} that the server has no room for yet
    this.reported = 0;
    this.listeners = [
      ["heard", ({ detail }) => this.heard(this.find(detail.turn))],
      ["audible", ({ detail }) => this.audible(this.find(detail.turn), detail.at)],
      ["report", () => this.report()],
    ];
    for (const [type, listener] of this.listeners) player.addEventListener(type, listener);
    this.link = new Link(this.url, () => this.fields(), {
      onState: (state, detail) => this.connection(state, detail),
      onMessage: (message) => this.message(message),
      onPacket: (packet) => this.packet(packet),
      onWire: (direction, message, bytes) => this.tell("wire", { direction, message, bytes }),
    });
  }

  /** Choose the format and connect; returns at once after that. A second call does no more. */
  open() {
    return (this.opening ??= this.connect());
  }

  async connect() {
    this.format = this.wanted.format === "auto" ? await chooseFormat() : this.wanted.format;
    if (this.format === "opus") warmUp();
    // It may have been closed meanwhile.
    if (this.state === "connecting") this.link.open();
  }

  async fields() {
    const token = await this.accessToken?.();
    const fields = { early_words: true, ...this.wanted, format: this.format };
    return { ...fields, ...(token && { access_token: token }) };
  }

  get state() {
    return this.link.state;
  }

  /** Change voice, language or speed of later turns; `scope: "piece"` of what is sent next. */
  update(fields) {
    const { scope, ...kept } = fields;
    Object.assign(this.wanted, kept);
    // A session that is yet to start takes them from `session.start`.
    if (this.state === "open" || this.state === "resuming") {
      this.link.send({ type: "session.update", ...fields });
    }
  }

  /** Open a turn. `interrupt`: it takes the place of all others. */
  begin({ interrupt = false } = {}) {
    const turn = new Turn(this, this.format);
    const message = { type: "turn.start" };
    if (interrupt) {
      const position = this.position();
      Object.assign(message, { interrupt: true }, position && { played_samples: position.sample });
      this.silence();
    }
    if (this.current && !this.current.ended) this.current.ended = true;
    this.current = turn;
    this.turns.push(turn);
    this.post(turn, message);
    return turn;
  }

  /** Speak a whole text. */
  speak(text, options) {
    const turn = this.begin(options);
    turn.append(text);
    turn.end();
    return turn;
  }

  /** Barge in: silence now; the turns learn from the server what of them was heard. */
  cancel() {
    if (!this.turns.length) return;
    const position = this.position();
    this.link.send({
      type: "turn.cancel",
      ...(position && { played_samples: position.sample }),
    });
    this.silence();
  }

  /** What is heard now: `{turn: Turn, sample}`, or null. */
  position() {
    const place = this.player.position();
    const turn = place && this.find(place.turn);
    return turn ? { turn, sample: place.sample } : null;
  }

  close() {
    for (const turn of this.turns) turn.decoder?.close();
    this.silence();
    for (const [type, listener] of this.listeners) this.player.removeEventListener(type, listener);
    this.link.close();
  }

  // -- what turns send -----------------------------------------------------------------------------

  /** Messages of a turn, in order, as the server has room for its text. */
  post(turn, message) {
    if (message.type === "text.append") {
      for (const text of parts(message.text)) {
        this.outbox.push({ turn, message: { ...message, text } });
      }
    } else {
      this.outbox.push({ turn, message });
    }
    this.drain();
  }

  drain() {
    while (this.outbox.length) {
      const { turn, message } = this.outbox[0];
      const waiting = this.turns.reduce((sum, { sent, cut }) => sum + sent - cut, 0);
      if (message.type === "text.append" && this.full(waiting + message.text.length)) return;
      this.outbox.shift();
      if (message.type === "text.append") turn.sent += message.text.length;
      if (message.type === "turn.start") this.starting.push(turn);
      this.link.send(message);
    }
  }

  full(waiting) {
    if (this.state === "connecting") return waiting > APPEND_UNITS;
    return this.paused || waiting > BACKLOG_SHARE * (this.started?.limits.backlog_chars ?? 0);
  }

  silence() {
    const place = this.position();
    this.player.clear();
    for (const turn of this.turns.filter((each) => !each.silenced)) {
      turn.silenced = true;
      turn.ended = true;
      turn.decoder?.close();
      turn.heardUntil = place?.turn === turn ? place.sample : -1;
    }
    const unsent = this.outbox.splice(0).filter(({ message }) => message.type === "turn.start");
    this.settle(unsent.map(({ turn }) => turn));
    // A turn that by the server's reckoning was heard to its end gets no answer.
    const done = this.turns.filter((turn) => turn.state === "done");
    if (done.length) setTimeout(() => this.settle(done), ANSWER_MS);
  }

  settle(turns) {
    for (const turn of turns.filter((each) => !each.over)) {
      this.over(turn, "cancelled", turn.splitAt(turn.heardUntil));
    }
  }

  // -- what comes ----------------------------------------------------------------------------------

  find(key) {
    return this.turns.find((turn) => turn.playerKey === key);
  }

  connection(state, detail) {
    if (detail?.lost) this.abandon(detail.lost);
    if (detail?.type === "session.started") this.started = detail;
    if (state === "open") queueMicrotask(() => this.drain());
    this.tell("state", { state, started: this.started, reason: detail?.lost ?? detail?.waiting });
  }

  // The session is gone: what was not heard of its turns is not coming any more.
  abandon(reason) {
    const place = this.position();
    this.player.clear();
    for (const turn of this.turns.splice(0)) {
      turn.decoder?.close();
      if (turn.silenced) {
        this.over(turn, "cancelled", turn.splitAt(turn.heardUntil));
      } else {
        this.over(turn, "lost", turn.splitAt(place?.turn === turn ? place.sample : -1));
        this.tell("lost", { turn, reason });
      }
    }
    this.starting = [];
    this.outbox = [];
    this.paused = false;
    this.current = null;
  }

  message(message) {
    const turn = this.turns.find((each) => each.id === message.turn);
    if (message.type === "turn.started") {
      const next = this.starting.shift();
      if (next) {
        next.id = message.turn;
        this.changed(next);
      }
    } else if (message.type === "caption" && turn) {
      turn.captions.set(message.piece, message);
      turn.words.take(message);
      if (message.final) turn.cut = Math.max(turn.cut, turn.written.unit(message.end));
      this.changed(turn);
      this.drain();
    } else if (message.type === "turn.done" && turn) {
      this.done(turn, message);
    } else if (message.type === "turn.cancelled" && turn) {
      turn.decoder?.close();
      this.over(turn, "cancelled", message);
    } else if (message.type === "flow.pause" || message.type === "flow.resume") {
      this.paused = message.type === "flow.pause";
      this.tell("flow", { paused: this.paused });
      this.drain();
    } else if (message.type === "error") {
      this.failed(message, turn);
    }
  }

  failed(error, turn) {
    let about = turn;
    if (error.request === "turn.start") about = this.starting.shift();
    else if (error.request === "text.append") about = this.current;
    if (about) {
      about.errors.push(error);
      if (error.request === "turn.start") this.over(about, "failed", error);
    }
    // Nothing was there to cancel: the turn ended as the cancel went out.
    if (error.request === "turn.cancel") {
      this.settle(this.turns.filter((each) => each.silenced));
      return;
    }
    this.tell("error", { ...error, turn: about });
  }

  packet(packet) {
    const turn = this.turns.find((each) => each.id === packet.turn);
    if (!turn || turn.silenced) return;
    turn.packets += 1;
    turn.bytes += packet.payload.length;
    turn.received = packet.position + packet.samples;
    if (turn.firstPacketMs === null) {
      turn.firstPacketMs = performance.now() - turn.askedAt;
      turn.state = "speaking";
      this.changed(turn);
    }
    this.tell("packet", { turn, packet });
    this.decoder(turn).push(packet);
  }

  // Each turn has a decoder of its own. Decoding is not done in step with the packets, so what a
  // later turn decodes waits until the earlier ones are complete.
  decoder(turn) {
    if (turn.decoder) return turn.decoder;
    playerKeys += 1;
    turn.playerKey = playerKeys;
    turn.format = this.format;
    turn.decoded = 0;
    const take = (samples) => {
      if (turn.silenced || !samples.length) return;
      const start = turn.decoded;
      turn.decoded += samples.length;
      this.tell("samples", { turn, start, samples });
      this.lane(turn, () => this.player.push(turn.playerKey, start, samples));
    };
    turn.decoder = makeDecoder(this.format, this.started.audio, take, (problem) =>
      this.tell("error", {
        code: "decoder_failed",
        message: problem.message,
        hint: "Choose PCM as the format.",
        turn,
      }));
    return turn.decoder;
  }

  lane(turn, action) {
    const before = this.turns.find((each) => each !== turn && each.decoder && !each.complete &&
      !each.silenced && each.id < turn.id);
    if (before) {
      (before.after ??= []).push(action);
    } else {
      action();
    }
  }

  async done(turn, message) {
    turn.samples = message.samples;
    turn.failedPieces = message.failed;
    if (turn.silenced) return;
    if (!message.packets) {
      this.over(turn, "failed", {});
      return;
    }
    turn.state = "done";
    turn.ended = true;
    this.changed(turn);
    await turn.decoder?.finish().catch(() => {});
    if (turn.silenced || turn.over) return;
    this.lane(turn, () => {
      this.player.complete(turn.playerKey, message.samples);
      turn.complete = true;
      for (const action of turn.after?.splice(0) ?? []) action();
    });
  }

  audible(turn, at) {
    if (!turn || turn.firstAudibleMs !== null) return;
    turn.firstAudibleMs = at - turn.askedAt;
    this.changed(turn);
  }

  heard(turn) {
    if (turn && turn.state === "done") {
      this.over(turn, "heard", { spoken: turn.text, unspoken: "", heard_samples: turn.samples });
    }
  }

  over(turn, state, { spoken = null, unspoken = null, heard_samples: heardSamples = null }) {
    turn.state = state;
    turn.ended = true;
    turn.spoken = spoken;
    // What the server never got is unspoken too.
    turn.unspoken = spoken === null ? unspoken : turn.text.slice(spoken.length);
    turn.heardSamples = heardSamples;
    turn.decoder = null;
    this.turns = this.turns.filter((each) => each !== turn);
    this.starting = this.starting.filter((each) => each !== turn);
    for (const action of turn.after?.splice(0) ?? []) action();
    if (this.current === turn) this.current = null;
    this.changed(turn);
    this.drain();
  }

  // The server paces itself by what is heard.
  report() {
    const now = performance.now();
    if (now - this.reported < PLAYBACK_MS || this.state !== "open") return;
    const place = this.position();
    if (!place?.turn.id) return;
    this.reported = now;
    this.link.send({
      type: "playback",
      turn: place.turn.id,
      played_samples: Math.min(place.sample, place.turn.received),
    });
  }

  changed(turn) {
    this.tell("turn", { turn });
  }

  tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

// Never within a character.
function* parts(text) {
  for (let at = 0; at < text.length; ) {
    let end = Math.min(text.length, at + APPEND_UNITS);
    if (end < text.length && /[\ud800-\udbff]/.test(text[end - 1])) end -= 1;
    yield text.slice(at, end);
    at = end;
  }
}
