// The waveform of the turn that is heard, with the places where its text was cut.

import { SAMPLE_RATE } from "../client/index.js";
import { colours, fresh } from "./canvas.js";
import { t } from "./i18n.js";

const BAR = 480; // samples: 20 ms
const LEAST_SECONDS = 4;

export class Wave {
  constructor(talk) {
    this.canvas = document.getElementById("wave");
    this.clock = document.getElementById("clock");
    this.turn = null;
    this.peaks = [];
    this.sample = 0;
    talk.addEventListener("samples", ({ detail }) => this.take(detail));
    talk.addEventListener("turn", ({ detail: { turn } }) => {
      if (turn === this.turn) this.over(turn);
    });
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    document.addEventListener("themechange", () => this.draw());
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
  }

  // Later turns are made while the first is still heard: each is shown once it is heard.
  take({ turn, start, samples }) {
    turn.peaks ??= [];
    for (let i = 0; i < samples.length; i += 1) {
      const bar = Math.floor((start + i) / BAR);
      const size = Math.abs(samples[i]);
      if (!(turn.peaks[bar] >= size)) turn.peaks[bar] = size;
    }
    this.turn ??= turn;
  }

  over(turn) {
    if (!turn.over) return;
    this.sample = turn.heardSamples ?? this.sample;
    this.draw();
    this.canvas.setAttribute("aria-label", t("waveform_of", {
      seconds: ((turn.decoded ?? 0) / SAMPLE_RATE).toFixed(1),
      pieces: turn.captions.size,
    }));
  }

  follow(place) {
    if (!place) return;
    if (place.turn !== this.turn) this.turn = place.turn;
    this.sample = place.sample;
    const now = performance.now();
    if (now - (this.drawn ?? 0) < (this.calm.matches ? 500 : 40)) return;
    this.drawn = now;
    this.draw();
  }

  draw() {
    const frame = fresh(this.canvas);
    if (!frame) return;
    const { context, width, height } = frame;
    const paint = colours();
    if (!this.turn) {
      context.fillStyle = paint.faint;
      for (let x = 0; x < width; x += 3) context.fillRect(x, height / 2 - 1, 2, 2);
      return;
    }
    const peaks = this.turn.peaks ?? [];
    const all = Math.max(peaks.length, (LEAST_SECONDS * SAMPLE_RATE) / BAR);
    const bars = Math.max(1, Math.floor(width / 3));
    const share = all / bars;
    for (let i = 0; i < bars; i += 1) {
      const from = Math.floor(i * share);
      if (from >= peaks.length) break;
      let peak = 0;
      for (let k = from; k < Math.max(from + 1, (i + 1) * share); k += 1) peak = Math.max(peak, peaks[k] ?? 0);
      const tall = Math.max(2, Math.min(1, 1.6 * peak) * (height - 8));
      context.fillStyle = (i + 0.5) * share * BAR <= this.sample ? paint.accent : paint.faint;
      context.fillRect(i * 3, (height - tall) / 2, 2, tall);
    }
    const x = (sample) => (sample / BAR / all) * width;
    context.fillStyle = paint.cut;
    for (const cue of this.turn.captions.values()) {
      if (cue.start_sample > 0) context.fillRect(Math.round(x(cue.start_sample)) - 1, 0, 1.5, height);
    }
    if (!this.turn.over) {
      context.fillStyle = paint.ink;
      context.fillRect(Math.round(x(this.sample)), 0, 1.5, height);
    }
    const whole = (this.turn.samples ?? this.turn.decoded ?? 0) / SAMPLE_RATE;
    const text = `${(this.sample / SAMPLE_RATE).toFixed(1)} / ${whole.toFixed(1)} s`;
    if (this.clock.textContent !== text) this.clock.textContent = text;
  }
}
