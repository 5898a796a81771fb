import { JitterRing } from "./ring.js";

const REPORT_SECONDS = 0.02;

class VoxgatePlayer extends AudioWorkletProcessor {
  constructor() {
    super();
    this.ring = new JitterRing(sampleRate);
    this.sinceReport = 0;
    this.idle = true;
    this.port.onmessage = ({ data }) => {
      this.idle = false;
      if (data.samples) this.ring.push(data.turn, data.start, data.samples);
      else if (data.complete !== undefined) this.ring.complete(data.complete, data.length);
      else if (data.clear) this.ring.clear();
      else if (data.close) this.closed = true;
    };
  }

  process(_inputs, [[out]]) {
    if (this.closed) return false;
    const ring = this.ring;
    const before = ring.underruns;
    ring.read(out);
    this.sinceReport += out.length / sampleRate;
    const told = ring.onset || ring.passed.length || ring.underruns !== before;
    if (told || (!this.idle && this.sinceReport >= REPORT_SECONDS)) this.report(out.length);
    return true;
  }

  report(frames) {
    const ring = this.ring;
    this.sinceReport = 0;
    // The next block begins one block later than this one.
    this.port.postMessage({
      ...ring.position,
      time: currentTime + frames / sampleRate,
      playing: ring.playing,
      speed: ring.speed,
      lead: ring.lead,
      target: ring.target,
      underruns: ring.underruns,
      dry: ring.dry,
      passed: ring.passed.splice(0),
      onset: ring.onset && { turn: ring.onset.turn, time: currentTime + ring.onset.offset / sampleRate },
    });
    this.idle = !ring.turns.length && !ring.playing;
  }
}

registerProcessor("voxgate-player", VoxgatePlayer);
