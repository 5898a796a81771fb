// Plays queued samples. Starts once the jitter buffer is filled or all audio is there; when it runs
// dry it fills the buffer again. Reports its position some ten times a second.

const BUFFER_SECONDS = 0.1;
const REPORT_FRAMES = Math.round(sampleRate / 10);

class Player extends AudioWorkletProcessor {
  constructor() {
    super();
    this.clear();
    this.port.onmessage = ({ data }) => {
      if (data.samples) {
        this.queue.push(data.samples);
        this.queued += data.samples.length;
      } else if (data.complete) {
        this.complete = true;
      } else if (data.clear) {
        this.clear();
      }
    };
  }

  clear() {
    this.queue = [];
    this.offset = 0;
    this.queued = 0;
    this.played = 0;
    this.gaps = 0;
    this.playing = false;
    this.complete = false;
    this.sinceReport = 0;
  }

  process(_inputs, [[output]]) {
    if (!this.playing) {
      const enough = this.queued >= BUFFER_SECONDS * sampleRate;
      if (!(enough || (this.complete && this.queued))) return true;
      this.playing = true;
    }
    let filled = 0;
    while (filled < output.length && this.queue.length) {
      const head = this.queue[0];
      const count = Math.min(output.length - filled, head.length - this.offset);
      output.set(head.subarray(this.offset, this.offset + count), filled);
      filled += count;
      this.offset += count;
      if (this.offset === head.length) {
        this.queue.shift();
        this.offset = 0;
      }
    }
    this.queued -= filled;
    this.played += filled;
    this.sinceReport += output.length;
    if (filled < output.length) {
      this.playing = false;
      if (!this.complete) this.gaps += 1;
    }
    const over = this.complete && !this.queued;
    if (over || this.sinceReport >= REPORT_FRAMES) {
      this.sinceReport = 0;
      this.port.postMessage({ played: this.played / sampleRate, gaps: this.gaps, over });
    }
    return true;
  }
}

registerProcessor("player", Player);
