// The jitter buffer: one ring of samples, the turns in it, and when to play. Pure; the worklet and
// the tests drive it.
//
// Playing starts with `target` seconds in hand (50 ms at first) or all of a turn. Running dry ramps
// to silence and raises the target by as long as it stayed dry, for going on within a turn; a new turn
// waits for 100 ms at most. Seconds of smooth playing lower the target again.
// Below target, playing slows by at most half a percent: that takes up the drift of two clocks and
// small gaps without a click, and half a percent is not heard.

const FADE_SECONDS = 0.005;
const LEAST_TARGET = 0.05;
const MOST_AT_START = 0.1; // a turn's first sound does not pay for the gaps of others
const MOST_TARGET = 0.5;
const SLOWEST = 0.995;
const CALM_SECONDS = 8;
const CALMER = 0.8;
const AUDIBLE = 10 ** (-50 / 20);

export class JitterRing {
  constructor(rate) {
    this.rate = rate;
    this.fade = Math.round(FADE_SECONDS * rate);
    this.buffer = new Float32Array(2 ** 16);
    this.written = 0; // samples ever pushed
    this.at = 0; // where on that count playing is, with a fraction while stretching
    this.turns = []; // { turn, from, offset, end }: end is null until the turn is complete
    this.target = LEAST_TARGET;
    this.playing = false;
    this.gain = 0;
    this.underruns = 0;
    this.dry = 0; // seconds
    this.calm = 0;
    this.speed = 1;
    this.tail = null;
    this.onset = null;
    this.passed = []; // turns that were played to their end since last asked
  }

  /** Samples of a turn, from sample `start` of its clock on. Turns are played in order. */
  push(turn, start, samples) {
    let last = this.turns.at(-1);
    if (!last || last.turn !== turn) {
      // A turn that never was completed ends where the next one begins.
      if (last && last.end === null) last.end = this.written;
      last = { turn, from: this.written, offset: start, end: null, audible: false };
      this.turns.push(last);
    }
    if (last.end !== null) return;
    this.reserve(samples.length);
    const mask = this.buffer.length - 1;
    const place = this.written & mask;
    const first = Math.min(samples.length, this.buffer.length - place);
    this.buffer.set(samples.subarray(0, first), place);
    this.buffer.set(samples.subarray(first), 0);
    this.written += samples.length;
  }

  /** No more samples of a turn; those beyond `length` on its clock are not played. */
  complete(turn, length) {
    const mark = this.turns.find((each) => each.turn === turn);
    if (!mark || mark.end !== null) {
      if (!mark) this.passed.push(turn);
      return;
    }
    const end = length === undefined ? this.written : mark.from + length - mark.offset;
    mark.end = Math.max(mark.from, Math.min(this.written, end));
    // It ran dry only because its end had not been told yet.
    if (mark.dryAt !== undefined && mark.dryAt >= mark.end - 1) this.underruns -= 1;
  }

  /** Drop everything; what sounds now ramps to silence. */
  clear() {
    if (this.playing && this.written - this.at >= 1) {
      const count = Math.min(this.fade, Math.floor(this.written - this.at));
      this.tail = Float32Array.from(
        { length: count },
        (_, i) => this.sample(Math.floor(this.at) + i) * this.gain * (1 - i / count),
      );
    }
    this.at = this.written;
    this.turns = [];
    this.playing = false;
  }

  /** Seconds in hand. */
  get lead() {
    const samples = this.turns.reduce((sum, { from, end }, i) => {
      const until = end ?? this.written;
      return sum + Math.max(0, until - (i ? from : this.at));
    }, 0);
    return samples / this.rate;
  }

  /** Where playing is: the turn and the sample of its clock; null when nothing is queued. */
  get position() {
    const mark = this.turns[0];
    return mark ? { turn: mark.turn, sample: Math.floor(this.at - mark.from) + mark.offset } : null;
  }

  reserve(more) {
    const held = this.written - Math.floor(this.at) + 4;
    if (held + more <= this.buffer.length) return;
    const old = this.buffer;
    let size = old.length;
    while (size < held + more) size *= 2;
    const grown = new Float32Array(size);
    for (let i = Math.max(0, this.written - held); i < this.written; i += 1) {
      grown[i & (size - 1)] = old[i & (old.length - 1)];
    }
    this.buffer = grown;
  }

  sample(index) {
    return index < this.written ? this.buffer[index & (this.buffer.length - 1)] : 0;
  }

  // Leave turns that were played to their end; the next one starts as the first did.
  advance() {
    while (this.turns.length && this.turns[0].end !== null && this.at >= this.turns[0].end) {
      this.passed.push(this.turns.shift().turn);
      this.playing = false;
      const next = this.turns[0];
      if (next) this.at = next.from;
    }
  }

  /** Fill one block of output. `onset` tells when it holds a turn's first audible sample. */
  read(out) {
    this.onset = null;
    out.fill(0);
    if (this.tail) {
      const part = this.tail.subarray(0, out.length);
      out.set(part);
      this.tail = this.tail.length > part.length ? this.tail.subarray(part.length) : null;
    }
    let filled = 0;
    while (filled < out.length) {
      this.advance();
      const mark = this.turns[0];
      if (!mark) break;
      const open = mark.end === null;
      const left = (mark.end ?? this.written) - this.at;
      if (!this.playing) {
        const begins = this.at === mark.from;
        const wanted = begins ? Math.min(this.target, MOST_AT_START) : this.target;
        if (open && left < wanted * this.rate) {
          this.starve(mark, out.length - filled);
          break;
        }
        this.playing = true;
        this.gain = begins ? 1 : 0;
      } else if (open && left < 1) {
        this.playing = false;
        this.underruns += 1;
        this.calm = 0;
        mark.dryAt = this.at;
        break;
      }
      this.adapt(open, left, out.length - filled);
      filled = this.play(mark, out, filled);
    }
    if (!this.turns.length) this.playing = false;
  }

  play(mark, out, from) {
    const open = mark.end === null;
    const limit = mark.end ?? this.written;
    let filled = from;
    while (filled < out.length) {
      const left = limit - this.at;
      if (left < (open ? 1 : Number.MIN_VALUE)) break;
      this.gain = open && left <= this.fade ? Math.min(this.gain, left / this.fade)
        : Math.min(1, this.gain + 1 / this.fade);
      const value = this.interpolate() * this.gain;
      if (!mark.audible && Math.abs(value) > AUDIBLE) {
        mark.audible = true;
        this.onset = { turn: mark.turn, offset: filled };
      }
      out[filled] += value;
      this.at += this.speed;
      filled += 1;
    }
    return filled;
  }

  // Dry within a turn: the next time more has to be in hand.
  starve(mark, frames) {
    if (this.at === mark.from) return;
    const seconds = frames / this.rate;
    this.dry += seconds;
    this.target = Math.min(MOST_TARGET, this.target + seconds);
  }

  adapt(open, left, frames) {
    this.calm += frames / this.rate;
    if (this.calm > CALM_SECONDS) {
      this.calm = 0;
      this.target = Math.max(LEAST_TARGET, this.target * CALMER);
    }
    const short = open ? 1 - left / (this.target * this.rate) : 0;
    if (short > 0) {
      this.speed = Math.max(SLOWEST, 1 - (1 - SLOWEST) * 2 * short);
    } else if (this.speed !== 1) {
      this.speed = 1;
      this.at = Math.round(this.at);
    }
  }

  interpolate() {
    const whole = Math.floor(this.at);
    const part = this.at - whole;
    if (part === 0) return this.sample(whole);
    const a = this.sample(whole - 1);
    const b = this.sample(whole);
    const c = this.sample(whole + 1);
    const d = this.sample(whole + 2);
    // Catmull-Rom.
    return b + 0.5 * part * (c - a + part * (2 * a - 5 * b + 4 * c - d + part * (3 * (b - c) + d - a)));
  }
}
