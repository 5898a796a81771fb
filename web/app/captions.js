// A subtitle file read aloud in real time; faster, within limits, when the reading falls behind.

import { parseSubtitles } from "../client/index.js";
import { t } from "./i18n.js";
import { SAMPLE_CAPTIONS } from "./samples.js";

const at = (id) => document.getElementById(id);
const PATIENCE = 2; // seconds behind before speech gets faster
const FASTER = 0.1; // a second
const FASTEST = 1.4;
const STEP = 0.05;
const LEAD_IN = 1; // silence before the first caption is cut to this

export class Captions {
  constructor(talk, composer, notices) {
    this.talk = talk;
    this.composer = composer;
    this.notices = notices;
    this.cues = null;
    this.name = "";
    this.playing = null;
    const marked = [at("drop"), at("stage")];
    const mark = (over) => marked.forEach((each) => each.classList.toggle("over", over));
    at("file").addEventListener("change", ({ target }) => this.load(target.files[0]));
    at("sample").addEventListener("click", () => this.take("sample.vtt", SAMPLE_CAPTIONS));
    // A file may be dropped anywhere on the page.
    document.addEventListener("dragover", (event) => {
      event.preventDefault();
      mark(true);
    });
    document.addEventListener("dragleave", () => mark(false));
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      mark(false);
      const [file] = event.dataTransfer.files;
      if (!file) return;
      composer.choose("captions");
      this.load(file);
    });
  }

  async load(file) {
    if (!file) return;
    let source = "";
    try {
      source = await file.text();
    } catch {
      // A folder, or gone meanwhile: it has no subtitles either.
    }
    this.take(file.name, source);
  }

  take(name, source) {
    try {
      this.cues = parseSubtitles(source);
    } catch {
      this.notices.alert(t("file_bad", { name }));
      return;
    }
    this.name = name;
    this.show();
    this.composer.buttons();
    this.notices.announce(t("captions_ready", { name, count: this.cues.length }));
  }

  show() {
    if (this.playing) return;
    at("drop-text").textContent = this.cues
      ? t("captions_ready", { name: this.name, count: this.cues.length })
      : t("drop");
  }

  start() {
    if (!this.cues) return;
    this.stop();
    const skipped = Math.max(0, this.cues[0].start - LEAD_IN);
    const turn = this.talk.begin({ interrupt: this.talk.speaking });
    this.playing = {
      turn,
      next: 0,
      began: performance.now() / 1000 - skipped,
      speed: this.base,
      starts: [], // where each cue's text begins in the turn, and when it was due
      lag: 0,
    };
    this.schedule();
  }

  get base() {
    return this.talk.setup.chosen.speed;
  }

  get clock() {
    return performance.now() / 1000 - this.playing.began;
  }

  schedule() {
    const playing = this.playing;
    const cue = this.cues[playing.next];
    playing.timer = setTimeout(() => this.due(), Math.max(0, cue.start - this.clock) * 1000);
  }

  due() {
    const playing = this.playing;
    const { turn } = playing;
    if (turn.over || turn.silenced) {
      this.end();
      return;
    }
    this.pace();
    const cue = this.cues[playing.next];
    playing.starts.push({ at: turn.written.points, due: cue.start });
    // Each caption is said when it is due, not when the next one has shown that it is over.
    turn.append(`${cue.text}\n`);
    turn.flush();
    playing.next += 1;
    if (playing.next < this.cues.length) this.schedule();
    else turn.end();
  }

  pace() {
    const playing = this.playing;
    const wanted = playing.lag > PATIENCE ? 1 + FASTER * (playing.lag - PATIENCE) : 1;
    const most = Math.min(FASTEST, this.talk.session.started?.limits.max_speed ?? FASTEST);
    const speed = Math.round(Math.min(most, this.base * Math.min(FASTEST, wanted)) / STEP) * STEP;
    if (Math.abs(speed - playing.speed) < STEP / 2) return;
    playing.speed = speed;
    this.talk.update({ speed, scope: "piece" });
  }

  /** How far behind the heard word is. */
  follow(place) {
    const playing = this.playing;
    if (!playing) return;
    if (playing.turn.over) {
      this.end();
      return;
    }
    if (place?.turn !== playing.turn) return;
    const word = playing.turn.words.words[playing.turn.words.at(place.sample)];
    const index = playing.starts.findLastIndex(({ at: start }) => word && start <= word.start);
    if (index >= 0 && index !== playing.said) {
      playing.said = index;
      playing.lag = Math.max(0, this.clock - playing.starts[index].due);
    }
    const progress = t("captions_progress", {
      at: playing.next,
      all: this.cues.length,
      lag: playing.lag.toFixed(1),
      speed: playing.speed.toFixed(2),
    });
    if (at("drop-text").textContent !== progress) at("drop-text").textContent = progress;
  }

  end() {
    const { turn } = this.playing;
    const name = this.name;
    this.stop();
    if (turn.state === "heard") this.notices.announce(t("captions_done", { name }));
  }

  stop() {
    if (!this.playing) return;
    clearTimeout(this.playing.timer);
    if (this.playing.speed !== this.base) this.talk.update({ speed: this.base });
    this.playing = null;
    this.show();
  }
}
