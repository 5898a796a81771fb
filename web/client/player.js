// Samples to the loudspeakers through one AudioWorklet, and where in them the listener is.

import { SAMPLE_RATE } from "./protocol.js";

const REPORTS_KEPT = 128;
const STALLED_MS = 2500;
const TICK_MS = 1000;
const REST_MS = 20000; // after so long in silence the audio rests, and lets the machine sleep

/**
 * Events: `report` (what the worklet tells, some 50 times a second while it plays), `heard`
 * ({turn}: played to its end), `audible` ({turn, at}: performance.now() of its first sound at the
 * output), `state`.
 *
 * States: `locked` (the browser wants a click or a key first), `running`, `interrupted` (by the
 * system or a lost device; comes back by itself where the browser lets it).
 */
export class Player extends EventTarget {
  constructor() {
    super();
    this.state = "locked";
    this.context = null;
    this.node = null;
    this.analyser = null;
    this.reports = [];
    this.kept = []; // what is queued and not yet played, for a new context after a lost device
    this.completed = new Map();
    this.stoppedAt = null;
    this.moved = { time: 0, at: 0 };
    this.resting = false;
    this.wake = () => this.recover();
  }

  /** Make the audio, silent until `unlock`: then the first sound does not wait for it. */
  async prepare() {
    if (this.context) return;
    try {
      await (this.building ??= this.build());
    } finally {
      this.building = null; // One that failed is tried again the next time.
    }
  }

  /**
   * Make or resume the audio; call it from a click or a key press. True when sound can be heard.
   * Rejects where there is no AudioWorklet, or its file cannot be had.
   */
  async unlock() {
    await this.prepare();
    this.wakeUp();
    if (this.context.state !== "running") {
      // Without a gesture this promise stays open in some browsers.
      await Promise.race([this.context.resume(), new Promise((done) => setTimeout(done, 300))]);
    }
    this.changed();
    return this.state === "running";
  }

  async build() {
    const context = new AudioContext({ sampleRate: SAMPLE_RATE, latencyHint: "interactive" });
    try {
      await context.audioWorklet.addModule(new URL("worklet.js", import.meta.url));
    } catch (failure) {
      context.close();
      throw failure;
    }
    this.context = context;
    this.node = new AudioWorkletNode(context, "voxgate-player", {
      numberOfInputs: 0,
      outputChannelCount: [1],
    });
    this.analyser = context.createAnalyser();
    this.analyser.fftSize = 512;
    this.node.onprocessorerror = () => this.rebuild();
    this.node.port.onmessage = ({ data }) => this.take(data);
    this.node.connect(this.analyser).connect(context.destination);
    context.onstatechange = () => this.changed();
    context.onerror = () => this.rebuild();
    if (!this.ticking) {
      this.ticking = setInterval(() => this.watch(), TICK_MS);
      document.addEventListener("visibilitychange", this.wake);
      navigator.mediaDevices?.addEventListener("devicechange", this.wake);
    }
    this.replay();
  }

  // What came before there was a context, or was not played by the last one.
  replay() {
    const from = this.stoppedAt;
    this.stoppedAt = null;
    const ends = new Map(this.completed);
    let last = null;
    for (const { turn, start, samples } of this.kept) {
      if (last !== null && last !== turn) this.end(last, ends);
      last = turn;
      const skip = turn === from?.turn ? Math.max(0, from.sample - start) : 0;
      if (skip < samples.length) {
        this.post({ turn, start: start + skip, samples: samples.subarray(skip) });
      }
    }
    for (const turn of [...ends.keys()]) this.end(turn, ends);
  }

  end(turn, ends) {
    if (!ends.has(turn)) return;
    this.post({ complete: turn, length: ends.get(turn) });
    ends.delete(turn);
  }

  changed() {
    const state = this.context?.state === "running" || this.resting ? "running"
      : this.state === "locked" ? "locked" : "interrupted";
    if (state === this.state) return;
    this.state = state;
    this.tell("state", { state });
  }

  /** Samples of a turn from sample `start` of its clock on, at 24 kHz. */
  push(turn, start, samples) {
    if (!samples.length) return;
    if (this.resting) this.wakeUp();
    this.kept.push({ turn, start, samples });
    this.post({ turn, start, samples });
  }

  /** A turn has no more samples than `length`. */
  complete(turn, length) {
    this.completed.set(turn, length);
    this.post({ complete: turn, length });
  }

  /** Silence within some 5 ms; everything queued is dropped. */
  clear() {
    this.kept = [];
    this.completed.clear();
    this.reports = [];
    this.post({ clear: true });
  }

  post(message) {
    this.node?.port.postMessage(message);
  }

  /** Seconds from the render clock to the ear, as far as the browser tells. */
  get latency() {
    return this.context?.outputLatency || this.context?.baseLatency || 0;
  }

  // What is at the output now, on the context's clock.
  now() {
    const context = this.context;
    const told = context.getOutputTimestamp?.();
    if (told?.contextTime > 0) {
      const now = told.contextTime + (performance.now() - told.performanceTime) / 1000;
      // Some browsers stop updating it; then it is not to be believed.
      if (now <= context.currentTime + 0.05 && now > context.currentTime - 1) return now;
    }
    return context.currentTime - this.latency;
  }

  /** What the listener hears now: `{turn, sample}` at 24 kHz, or null. */
  position() {
    if (!this.context || !this.reports.length) return null;
    const now = this.now();
    let i = this.reports.length - 1;
    while (i > 0 && this.reports[i].time > now) i -= 1;
    const report = this.reports[i];
    if (report.turn === undefined) return null;
    const elapsed = report.playing ? (now - report.time) * SAMPLE_RATE * report.speed : 0;
    let sample = report.sample + Math.min(elapsed, report.lead * SAMPLE_RATE);
    const next = this.reports[i + 1];
    if (next && next.turn === report.turn) sample = Math.min(sample, next.sample);
    return { turn: report.turn, sample: Math.max(0, Math.round(sample)) };
  }

  take(report) {
    this.reports.push(report);
    if (this.reports.length > REPORTS_KEPT) this.reports.shift();
    this.moved = { time: this.context.currentTime, at: performance.now() };
    while (this.kept.length && this.played(this.kept[0], report)) this.kept.shift();
    this.tell("report", report);
    if (report.onset) {
      const { turn, time } = report.onset;
      const wait = Math.max(0, time + this.latency - this.context.currentTime) * 1000;
      this.tell("audible", { turn, at: performance.now() + wait });
    }
    for (const turn of report.passed) {
      this.completed.delete(turn);
      this.kept = this.kept.filter((chunk) => chunk.turn !== turn);
      // It is heard when it has passed the output, not when it was rendered.
      setTimeout(() => this.tell("heard", { turn }), 1000 * this.latency);
    }
  }

  played({ turn, start, samples }, report) {
    return turn === report.turn && start + samples.length <= report.sample;
  }

  tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  /** Try to be heard again: after sleep, a call, or another output device. */
  async recover() {
    if (this.state === "locked" || this.resting) return;
    if (!this.context) await this.renew();
    else if (this.context.state === "closed") await this.rebuild();
    else if (this.context.state !== "running") await this.context.resume().catch(() => {});
    this.changed();
  }

  rest() {
    this.resting = true;
    this.context.suspend().catch(() => {});
  }

  wakeUp() {
    this.moved = { time: this.context?.currentTime ?? 0, at: performance.now() };
    if (!this.resting) return;
    this.resting = false;
    this.context.resume().catch(() => {});
  }

  // A context whose clock stands still while there is something to play has lost its device.
  watch() {
    if (this.resting) return;
    if (!this.context || this.state !== "running" || !this.kept.length) {
      if (!this.context || this.state === "interrupted") this.recover();
      else if (this.state === "running" && performance.now() - this.moved.at > REST_MS) this.rest();
      return;
    }
    const stands = this.context.currentTime === this.moved.time;
    if (stands && performance.now() - this.moved.at > STALLED_MS) this.rebuild();
  }

  async rebuild() {
    const context = this.context;
    if (this.building || !context) return;
    this.stoppedAt = this.reports.at(-1);
    this.node.port.onmessage = this.node.onprocessorerror = null;
    context.onstatechange = context.onerror = null;
    this.context = this.node = null;
    context.close().catch(() => {});
    this.reports = [];
    await this.renew();
    this.changed();
  }

  // The worklet's file may be out of reach just then: `watch` tries again.
  async renew() {
    try {
      await this.prepare();
      await this.context.resume();
    } catch {
      this.changed();
    }
  }

  async close() {
    clearInterval(this.ticking);
    document.removeEventListener("visibilitychange", this.wake);
    navigator.mediaDevices?.removeEventListener("devicechange", this.wake);
    this.post({ close: true });
    await this.context?.close();
  }
}
