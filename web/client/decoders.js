// Packets of one turn to Float32Array samples at 24 kHz, without the pre-skip.

import { SAMPLE_RATE } from "./protocol.js";
import { Halver } from "./halver.js";

const CODEC = { codec: "opus", sampleRate: SAMPLE_RATE, numberOfChannels: 1 };

const SILENCE = Uint8Array.of(0xf8, 0xff, 0xfe); // 20 ms

/** Whether this browser decodes bare Opus packets. Tries it, since some only say so. */
export async function supportsOpus() {
  if (!("AudioDecoder" in globalThis)) return false;
  try {
    return (await AudioDecoder.isConfigSupported(CODEC)).supported === true;
  } catch {
    return false;
  }
}

/** Fit for `session.start.format` here: Opus where it can be decoded, else PCM. */
export async function chooseFormat() {
  return (await supportsOpus()) ? "opus" : "pcm_s16le";
}

/** Let the browser load its Opus decoder, which takes it a third of a second the first time. */
export async function warmUp() {
  try {
    const decoder = new OpusDecoder({ pre_skip: 0 }, () => {});
    decoder.push({ position: 0, samples: 480, payload: SILENCE });
    await decoder.finish();
  } catch {
    // Turns say so when they cannot be decoded.
  }
}

/** A decoder for one turn in `format`; `onSamples` gets the samples in order. */
export function makeDecoder(format, audio, onSamples, onError) {
  if (format === "opus") return new OpusDecoder(audio, onSamples, onError);
  if (format === "pcm_s16le") return new PcmDecoder(audio, onSamples);
  if (format === "mulaw" || format === "alaw") return new G711Decoder(format, audio, onSamples);
  throw new RangeError(`No decoder for ${format}; ask for opus, pcm_s16le, mulaw or alaw.`);
}

class OpusDecoder {
  constructor({ pre_skip: preSkip }, onSamples, onError) {
    this.halver = null;
    this.onSamples = onSamples;
    // The browser may decode at another rate than it was asked for: count in seconds.
    let skip = preSkip / SAMPLE_RATE;
    this.decoder = new AudioDecoder({
      output: (data) => {
        let samples = new Float32Array(data.numberOfFrames);
        data.copyTo(samples, { planeIndex: 0, format: "f32-planar" });
        const rate = data.sampleRate;
        data.close();
        if (rate === 2 * SAMPLE_RATE) samples = (this.halver ??= new Halver()).take(samples);
        else if (rate !== SAMPLE_RATE) onError?.(new Error(`The Opus decoder runs at ${rate} Hz.`));
        const dropped = Math.min(samples.length, Math.round(skip * SAMPLE_RATE));
        skip -= dropped / SAMPLE_RATE;
        onSamples(samples.subarray(dropped));
      },
      error: (problem) => onError?.(problem),
    });
    this.decoder.configure(CODEC);
  }

  push({ position, samples, payload }) {
    if (this.decoder.state !== "configured") return;
    this.decoder.decode(new EncodedAudioChunk({
      type: "key",
      timestamp: Math.round((position / SAMPLE_RATE) * 1e6),
      duration: Math.round((samples / SAMPLE_RATE) * 1e6),
      data: payload,
    }));
  }

  async finish() {
    if (this.decoder.state === "configured") await this.decoder.flush();
    if (this.halver) this.onSamples(this.halver.rest());
    this.close();
  }

  close() {
    if (this.decoder.state !== "closed") this.decoder.close();
  }
}

class PcmDecoder {
  constructor({ pre_skip: preSkip }, onSamples) {
    this.skip = preSkip;
    this.onSamples = onSamples;
  }

  push({ payload }) {
    const view = new DataView(payload.buffer, payload.byteOffset, payload.byteLength);
    const samples = new Float32Array(payload.byteLength >> 1);
    for (let i = 0; i < samples.length; i += 1) samples[i] = view.getInt16(2 * i, true) / 32768;
    this.give(samples);
  }

  give(samples) {
    const dropped = Math.min(samples.length, this.skip);
    this.skip -= dropped;
    this.onSamples(samples.subarray(dropped));
  }

  async finish() {}

  close() {}
}

class G711Decoder extends PcmDecoder {
  constructor(format, audio, onSamples) {
    super(audio, onSamples);
    this.table = format === "mulaw" ? MULAW() : ALAW();
    this.last = 0;
  }

  // 8 kHz to 24 kHz: a straight line between samples; what a telephone sounds like needs no more.
  push({ payload }) {
    const samples = new Float32Array(3 * payload.length);
    for (let i = 0; i < payload.length; i += 1) {
      const next = this.table[payload[i]];
      const step = (next - this.last) / 3;
      for (let k = 0; k < 3; k += 1) samples[3 * i + k] = this.last + step * (k + 1);
      this.last = next;
    }
    this.give(samples);
  }
}

// G.711 tables, by the definitions in ITU-T G.711.
function MULAW() {
  return Float32Array.from({ length: 256 }, (_, code) => {
    const bits = ~code & 0xff;
    const size = ((((bits & 0x0f) << 3) + 0x84) << ((bits & 0x70) >> 4)) - 0x84;
    return (bits & 0x80 ? -size : size) / 32768;
  });
}

function ALAW() {
  return Float32Array.from({ length: 256 }, (_, code) => {
    const bits = code ^ 0x55;
    const exponent = (bits & 0x70) >> 4;
    let size = ((bits & 0x0f) << 4) + 8;
    if (exponent) size = (size + 0x100) << (exponent - 1);
    return (bits & 0x80 ? size : -size) / 32768;
  });
}
