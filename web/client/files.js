// A turn as a file: Ogg Opus (RFC 7845), WAV, WebVTT.

import { SAMPLE_RATE } from "./protocol.js";

const OGG_RATE = 48000; // granule positions of Ogg Opus count at it
const SERIAL = 0x766f7867;
const PAGE_PACKETS = 50;
const FIRST_PAGE = 2;
const LAST_PAGE = 4;

const CRC = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte << 24;
  for (let bit = 0; bit < 8; bit += 1) value = value & 0x80000000 ? (value << 1) ^ 0x04c11db7 : value << 1;
  return value >>> 0;
});

function crc(bytes) {
  let value = 0;
  for (const byte of bytes) value = ((value << 8) ^ CRC[(value >>> 24) ^ byte]) >>> 0;
  return value;
}

function page(sequence, granule, flags, packets) {
  const lacing = packets.flatMap((packet) => [
    ...Array(Math.floor(packet.length / 255)).fill(255),
    packet.length % 255,
  ]);
  const size = packets.reduce((sum, packet) => sum + packet.length, 0);
  const bytes = new Uint8Array(27 + lacing.length + size);
  const view = new DataView(bytes.buffer);
  bytes.set(new TextEncoder().encode("OggS"));
  bytes[5] = flags;
  view.setBigUint64(6, BigInt(granule), true);
  view.setUint32(14, SERIAL, true);
  view.setUint32(18, sequence, true);
  bytes[26] = lacing.length;
  bytes.set(lacing, 27);
  let at = 27 + lacing.length;
  for (const packet of packets) {
    bytes.set(packet, at);
    at += packet.length;
  }
  view.setUint32(22, crc(bytes), true);
  return bytes;
}

/**
 * Opus packets of one turn as an Ogg file.
 * @param {{samples: number, payload: Uint8Array}[]} packets
 * @param {{preSkip: number, length?: number}} audio both in samples at 24 kHz; `length` without
 *   pre-skip and padding
 */
export function oggOpus(packets, { preSkip, length }) {
  const scale = OGG_RATE / SAMPLE_RATE;
  const head = new Uint8Array(19);
  const view = new DataView(head.buffer);
  head.set(new TextEncoder().encode("OpusHead"));
  head[8] = 1;
  head[9] = 1;
  view.setUint16(10, preSkip * scale, true);
  view.setUint32(12, SAMPLE_RATE, true);
  const vendor = new TextEncoder().encode("voxgate");
  const tags = new Uint8Array(8 + 4 + vendor.length + 4);
  tags.set(new TextEncoder().encode("OpusTags"));
  new DataView(tags.buffer).setUint32(8, vendor.length, true);
  tags.set(vendor, 12);
  const pages = [page(0, 0, FIRST_PAGE, [head]), page(1, 0, 0, [tags])];
  let samples = 0;
  for (let at = 0; at < packets.length; at += PAGE_PACKETS) {
    const part = packets.slice(at, at + PAGE_PACKETS);
    samples += part.reduce((sum, packet) => sum + packet.samples, 0);
    const last = at + PAGE_PACKETS >= packets.length;
    const end = last && length !== undefined ? Math.min(samples, preSkip + length) : samples;
    const payloads = part.map((packet) => packet.payload);
    pages.push(page(pages.length, end * scale, last ? LAST_PAGE : 0, payloads));
  }
  return new Blob(pages, { type: "audio/ogg" });
}

/** Mono samples in [-1, 1] as a 16-bit WAV file. `parts`: one after the other. */
export function wav(parts, rate = SAMPLE_RATE) {
  const count = parts.reduce((sum, part) => sum + part.length, 0);
  const view = new DataView(new ArrayBuffer(44 + 2 * count));
  const text = (at, word) => [...word].forEach((c, i) => view.setUint8(at + i, c.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, 36 + 2 * count, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, 2 * rate, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, "data");
  view.setUint32(40, 2 * count, true);
  let at = 44;
  for (const part of parts) {
    for (const sample of part) {
      view.setInt16(at, Math.round(Math.max(-1, Math.min(1, sample)) * 32767), true);
      at += 2;
    }
  }
  return new Blob([view], { type: "audio/wav" });
}

function stamp(sample) {
  const ms = Math.round((sample / SAMPLE_RATE) * 1000);
  const part = (value, digits) => String(Math.floor(value)).padStart(digits, "0");
  return `${part(ms / 3600000, 2)}:${part((ms / 60000) % 60, 2)}:${part((ms / 1000) % 60, 2)}.${part(ms % 1000, 3)}`;
}

function escaped(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/** The captions of a turn as WebVTT, a time for each word where it is known. */
export function webvtt(turn) {
  const cues = turn.cues
    .filter((cue) => cue.end_sample > cue.start_sample)
    .map((cue) => {
      let at = turn.written.unit(cue.start);
      let body = "";
      for (const word of turn.words.words.filter((each) => each.piece === cue.piece)) {
        const from = turn.written.unit(word.start);
        const until = turn.written.unit(word.end);
        body += escaped(turn.text.slice(at, from));
        if (word.startSample > cue.start_sample) body += `<${stamp(word.startSample)}>`;
        body += escaped(turn.text.slice(from, until));
        at = until;
      }
      body += escaped(turn.text.slice(at, turn.written.unit(cue.end)));
      // A blank line would end the cue.
      const lines = body.trim().replace(/\s*\n\s*/g, "\n");
      return `${stamp(cue.start_sample)} --> ${stamp(cue.end_sample)}\n${lines}\n`;
    });
  return new Blob([["WEBVTT\n", ...cues].join("\n")], { type: "text/vtt" });
}
