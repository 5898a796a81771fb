// The client side of /v1/stream: JSON messages as they are, binary messages as packets.

const HEADER_BYTES = 24;
const HEADER_VERSION = 1;

export function readPacket(buffer) {
  const view = new DataView(buffer);
  if (view.byteLength < HEADER_BYTES || view.getUint8(0) !== HEADER_VERSION) {
    throw new Error("unknown audio message");
  }
  return {
    kind: view.getUint8(1),
    flags: view.getUint16(2, true),
    turn: view.getUint32(4, true),
    sequence: view.getUint32(8, true),
    samples: view.getUint32(12, true),
    position: Number(view.getBigUint64(16, true)),
    payload: new Uint8Array(buffer, HEADER_BYTES),
  };
}

// Connects again after a loss, later each time, and never two at once.
export class Stream {
  constructor(start, { onMessage, onPacket, onState }) {
    this.start = start;
    this.onMessage = onMessage;
    this.onPacket = onPacket;
    this.onState = onState;
    this.attempt = 0;
    this.socket = null;
  }

  connect() {
    const url = new URL("v1/stream", location.href);
    url.protocol = url.protocol.replace("http", "ws");
    this.socket = new WebSocket(url);
    this.socket.binaryType = "arraybuffer";
    let wait = null;
    this.socket.onopen = () => this.send({ type: "session.start", ...this.start });
    this.socket.onmessage = ({ data }) => {
      if (typeof data !== "string") {
        this.onPacket(readPacket(data));
        return;
      }
      const message = JSON.parse(data);
      if (message.type === "session.started") {
        this.attempt = 0;
        this.onState("open", message);
      }
      if (message.retry_after_ms) wait = message.retry_after_ms;
      this.onMessage(message);
    };
    this.socket.onclose = ({ reason }) => {
      this.onState("closed", reason);
      this.attempt += 1;
      const delay = wait ?? Math.min(10000, 500 * 2 ** this.attempt);
      setTimeout(() => this.connect(), delay * (1 + Math.random() / 2));
    };
  }

  get open() {
    return this.socket?.readyState === WebSocket.OPEN;
  }

  send(message) {
    this.socket.send(JSON.stringify(message));
  }
}
