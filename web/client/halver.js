// 48 kHz to 24 kHz across packets: a half-band filter, so that nothing above 12 kHz folds back.

const HALF = 23;
const TAPS = Float32Array.from({ length: 2 * HALF + 1 }, (_, i) => {
  const x = i - HALF;
  const sinc = x === 0 ? 0.5 : Math.sin((Math.PI * x) / 2) / (Math.PI * x);
  return sinc * (0.54 + 0.46 * Math.cos((Math.PI * x) / (HALF + 1)));
});
const GAIN = TAPS.reduce((sum, tap) => sum + tap, 0);

export class Halver {
  constructor() {
    // Centred on the first sample, so that nothing is delayed: what lies before is silence.
    this.held = new Float32Array(HALF);
  }

  /** Every second sample of the filtered stream; HALF samples stay back for the next call. */
  take(samples) {
    const all = new Float32Array(this.held.length + samples.length);
    all.set(this.held);
    all.set(samples, this.held.length);
    const count = Math.max(0, Math.floor((all.length - TAPS.length) / 2) + 1);
    const out = new Float32Array(count);
    for (let i = 0; i < count; i += 1) {
      let sum = 0;
      for (let k = 0; k < TAPS.length; k += 1) sum += TAPS[k] * all[2 * i + k];
      out[i] = sum / GAIN;
    }
    this.held = all.slice(2 * count);
    return out;
  }

  /** What was kept back. */
  rest() {
    return this.take(new Float32Array(HALF));
  }
}
