// An audio context with one worklet: samples in, position out.

export class Player {
  constructor(onPosition) {
    this.onPosition = onPosition;
    this.context = null;
  }

  // Browsers want a user's gesture first: call from a click.
  async start() {
    if (!this.context) {
      this.context = new AudioContext({ sampleRate: 24000, latencyHint: "interactive" });
      await this.context.audioWorklet.addModule("worklet.js");
      this.node = new AudioWorkletNode(this.context, "player", {
        numberOfInputs: 0,
        outputChannelCount: [1],
      });
      this.node.port.onmessage = ({ data }) => this.onPosition(data);
      this.node.connect(this.context.destination);
    }
    await this.context.resume();
  }

  push(samples, rate) {
    const fit = resample(samples, rate, this.context.sampleRate);
    this.node.port.postMessage({ samples: fit }, fit.byteOffset ? [] : [fit.buffer]);
  }

  complete() {
    this.node.port.postMessage({ complete: true });
  }

  clear() {
    this.node?.port.postMessage({ clear: true });
  }
}

// Opus decoders give 48 kHz or 24 kHz; the context has the rate asked for on all current browsers.
// A whole factor needs no more than an average, since speech coded at 24 kHz ends at 12 kHz.
function resample(samples, from, to) {
  if (from === to) return samples;
  const out = new Float32Array(Math.floor((samples.length * to) / from));
  const step = from / to;
  for (let i = 0; i < out.length; i += 1) {
    const at = i * step;
    const low = Math.floor(at);
    const high = Math.min(samples.length - 1, low + 1);
    out[i] = step === 2 ? (samples[low] + samples[high]) / 2
      : samples[low] + (samples[high] - samples[low]) * (at - low);
  }
  return out;
}
