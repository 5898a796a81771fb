// Packets of one turn to Float32Array samples at the rate of the audio context.

const RATE = 24000;

// Whether this browser decodes raw Opus packets; else the page asks for PCM.
export async function supportsOpus() {
  if (!("AudioDecoder" in globalThis)) return false;
  try {
    const config = { codec: "opus", sampleRate: RATE, numberOfChannels: 1 };
    return (await AudioDecoder.isConfigSupported(config)).supported;
  } catch {
    return false;
  }
}

export class OpusDecoder {
  constructor(preSkip, onSamples) {
    this.preSkip = preSkip;
    this.onSamples = onSamples;
    this.reset();
  }

  reset() {
    this.close();
    // The browser may decode at another rate than it was asked for: count in seconds.
    let skipSeconds = this.preSkip / RATE;
    this.decoder = new AudioDecoder({
      output: (data) => {
        const samples = new Float32Array(data.numberOfFrames);
        data.copyTo(samples, { planeIndex: 0, format: "f32-planar" });
        const skip = Math.min(samples.length, Math.round(skipSeconds * data.sampleRate));
        skipSeconds -= skip / data.sampleRate;
        this.onSamples(samples.subarray(skip), data.sampleRate);
        data.close();
      },
      error: (problem) => console.error("Opus decoder", problem),
    });
    this.decoder.configure({ codec: "opus", sampleRate: RATE, numberOfChannels: 1 });
  }

  push(packet) {
    this.decoder.decode(
      new EncodedAudioChunk({
        type: "key",
        timestamp: Math.round((packet.position / RATE) * 1e6),
        duration: Math.round((packet.samples / RATE) * 1e6),
        data: packet.payload,
      }),
    );
  }

  async flush() {
    await this.decoder.flush();
  }

  close() {
    if (this.decoder && this.decoder.state !== "closed") this.decoder.close();
  }
}

export class PcmDecoder {
  constructor(_preSkip, onSamples) {
    this.onSamples = onSamples;
  }

  reset() {}

  push({ payload }) {
    const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
    const samples = new Float32Array(payload.byteLength / 2);
    for (let i = 0; i < samples.length; i += 1) samples[i] = view.getInt16(2 * i, true) / 32768;
    this.onSamples(samples, RATE);
  }

  async flush() {}

  close() {}
}
