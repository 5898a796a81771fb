// The wire of /v1/stream: see docs/protocol.md.

/** Everything on the wire counts samples at this rate, whatever the format. */
export const SAMPLE_RATE = 24000;
export const HEADER_BYTES = 24;
export const KINDS = { 1: "opus", 2: "pcm_s16le", 3: "mulaw", 4: "alaw", 5: "ogg_opus", 6: "webm_opus" };
const VERSION = 1;
const FIRST = 1;
const FILLER = 2;

/** The parts of one binary message. Throws `TypeError` on anything else. */
export function readPacket(buffer) {
  const view = new DataView(buffer);
  if (view.byteLength < HEADER_BYTES || view.getUint8(0) !== VERSION) {
    throw new TypeError("This is no audio message of protocol version 1.");
  }
  const flags = view.getUint16(2, true);
  return {
    format: KINDS[view.getUint8(1)] ?? "unknown",
    first: (flags & FIRST) !== 0,
    filler: (flags & FILLER) !== 0,
    turn: view.getUint32(4, true),
    sequence: view.getUint32(8, true),
    samples: view.getUint32(12, true),
    position: Number(view.getBigUint64(16, true)),
    payload: new Uint8Array(buffer, HEADER_BYTES),
  };
}

/** The WebSocket address of the gateway that serves `base`. */
export function streamUrl(base) {
  const url = new URL("v1/stream", base);
  url.protocol = url.protocol.replace("http", "ws");
  return url.href;
}
