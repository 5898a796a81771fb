// One session over one WebSocket, or over several in turn: messages up and down, in order, each once.

import { readPacket, streamUrl } from "./protocol.js";

const PING_ID = "link";
const HEARTBEAT_MS = 4000;
const SILENCE_MS = 9000; // Nothing came for so long although pings went out: the connection is dead.
const CONNECT_MS = 8000;
const CONFIRM_EVERY = 128;
const RESUME_WAIT = [100, 2000];
const START_WAIT = [500, 10000];
const ASK_LATER = new Set(["starting", "engine_restarting", "draining", "capacity"]);

/**
 * States: `connecting` (no session yet), `open`, `resuming` (the session lives on without a
 * connection), `closed` (by `close`, or taken over).
 */
export class Link {
  /**
   * @param {string} base URL of the gateway
   * @param {() => Promise<object>} start fields of `session.start`
   * @param {{onMessage, onPacket, onState, onWire}} handlers
   */
  constructor(base, start, handlers) {
    this.base = base;
    this.start = start;
    this.handlers = handlers;
    this.state = "connecting"; // what is sent before `open` waits too
    this.resumes = 0;
    this.socket = null;
    this.live = false; // whether the server takes messages of the session over this socket
    this.forget();
    this.queued = [];
    this.wake = () => this.returned();
  }

  forget() {
    this.token = null;
    this.received = 0;
    this.confirmed = 0;
    this.unconfirmed = [];
    this.pings = [];
    this.lostAt = null;
  }

  open() {
    this.attempt = 0;
    this.setState("connecting");
    this.heartbeat = setInterval(() => this.beat(), HEARTBEAT_MS);
    globalThis.addEventListener?.("online", this.wake);
    globalThis.document?.addEventListener("visibilitychange", this.wake);
    this.connect();
  }

  /** End the session at once; nothing is opened again. */
  close() {
    clearInterval(this.heartbeat);
    clearTimeout(this.retry);
    clearTimeout(this.deadline);
    globalThis.removeEventListener?.("online", this.wake);
    globalThis.document?.removeEventListener("visibilitychange", this.wake);
    this.drop()?.close(1000);
    this.setState("closed");
  }

  /** Send now, or as soon as there is a session or a connection again. */
  send(message) {
    if (this.state === "connecting") this.queued.push(message);
    else if (this.state !== "closed") this.write(message);
  }

  setState(state, detail) {
    if (state === this.state && !detail) return;
    this.state = state;
    this.handlers.onState?.(state, detail);
  }

  connect() {
    clearTimeout(this.retry);
    this.retry = null;
    // All connections of a session bear one name, by which a load balancer finds its server again.
    if (!this.token) this.route = randomName();
    const socket = new WebSocket(`${streamUrl(this.base)}?route=${this.route}`);
    socket.binaryType = "arraybuffer";
    this.drop();
    this.socket = socket;
    this.asked = false;
    this.heardAt = performance.now();
    this.deadline = setTimeout(() => this.lost(1006, "", socket), CONNECT_MS);
    socket.onopen = () => {
      clearTimeout(this.deadline);
      if (this.token) {
        this.asked = true;
        this.ask({ type: "session.resume", token: this.token, received: this.received });
      } else {
        this.begin();
      }
    };
    socket.onmessage = ({ data }) => {
      if (socket === this.socket) this.take(data);
    };
    socket.onclose = ({ code, reason }) => this.lost(code, reason, socket);
  }

  async begin() {
    const { socket } = this;
    this.forget();
    const fields = await this.start().catch(() => null);
    if (!fields) socket.close();
    if (!fields || socket !== this.socket || socket.readyState !== WebSocket.OPEN) return;
    this.live = true;
    this.write({ ...fields, type: "session.start", resume: true });
  }

  // A close frame would end the session, so a connection that only seems dead is left open until
  // another one has taken the session over.
  drop() {
    const socket = this.socket;
    if (socket) socket.onopen = socket.onmessage = socket.onclose = null;
    this.socket = null;
    this.live = false;
    if (socket && socket.readyState !== WebSocket.CLOSED) (this.stale ??= []).push(socket);
    return socket;
  }

  write(message) {
    const text = JSON.stringify(message);
    this.unconfirmed.push(text);
    if (message.type === "ping") this.pings.push(this.confirmed + this.unconfirmed.length);
    if (this.live) this.socket.send(text);
    this.handlers.onWire?.("up", message, text.length);
    if (this.unconfirmed.length % CONFIRM_EVERY === 0) this.write({ type: "ping", id: PING_ID });
  }

  ask(message) {
    const text = JSON.stringify(message);
    this.socket.send(text);
    this.handlers.onWire?.("up", message, text.length);
  }

  take(data) {
    this.heardAt = performance.now();
    if (this.asked) {
      this.answered(JSON.parse(data), data.length);
      return;
    }
    this.received += 1;
    if (typeof data !== "string") {
      const packet = readPacket(data);
      this.handlers.onWire?.("down", packet, data.byteLength);
      this.handlers.onPacket?.(packet);
      return;
    }
    const message = JSON.parse(data);
    this.handlers.onWire?.("down", message, data.length);
    if (message.type === "pong") {
      this.confirm(this.pings.shift());
      if (message.id === PING_ID) return;
    }
    if (message.retry_after_ms) this.retryAfter = message.retry_after_ms;
    if (message.type === "session.started") {
      this.attempt = 0;
      this.token = message.token;
      this.resumeMs = 1000 * message.limits.resume_seconds;
      this.setState("open", message);
      for (const waiting of this.queued.splice(0)) this.write(waiting);
    }
    this.handlers.onMessage?.(message);
  }

  answered(message, length) {
    this.asked = false;
    this.handlers.onWire?.("down", message, length);
    if (message.type === "session.resumed") {
      this.attempt = 0;
      this.resumes += 1;
      this.lostAt = null;
      this.confirm(message.received);
      this.live = true;
      for (const text of this.unconfirmed) this.socket.send(text);
      for (const socket of this.stale?.splice(0) ?? []) socket.close();
      this.setState("open", message);
    } else if (ASK_LATER.has(message.code)) {
      this.retryAfter = message.retry_after_ms;
      this.lost(1006, "", this.socket);
    } else {
      this.giveUp(message.code);
      this.begin();
    }
  }

  confirm(count = 0) {
    const known = Math.max(0, count - this.confirmed);
    this.unconfirmed.splice(0, known);
    this.confirmed += known;
    while (this.pings.length && this.pings[0] <= this.confirmed) this.pings.shift();
  }

  // The session is gone; what was not confirmed is told, and the next connection starts anew.
  giveUp(reason) {
    this.forget();
    this.queued = [];
    for (const socket of this.stale?.splice(0) ?? []) socket.close();
    this.setState("connecting", { lost: reason });
  }

  lost(code, reason, socket) {
    if (socket !== this.socket || this.state === "closed") return;
    clearTimeout(this.deadline);
    this.drop();
    this.lostAt ??= performance.now();
    const mayResume = code === 1006 || code === 1001 || reason === "slow_reader" ||
      (code === 1011 && reason !== "internal");
    if (reason === "taken_over" || (code === 1000 && this.token)) {
      this.close();
      return;
    }
    if (this.token && (!mayResume || performance.now() - this.lostAt > this.resumeMs)) {
      this.giveUp(reason || "connection_lost");
    } else if (this.token) {
      this.setState("resuming");
    } else {
      this.setState("connecting", { waiting: reason });
    }
    const [least, most] = this.token ? RESUME_WAIT : START_WAIT;
    const wait = this.retryAfter ?? Math.min(most, least * 2 ** this.attempt);
    this.told = this.retryAfter != null; // by the server, when to come again
    this.retryAfter = null;
    this.attempt += 1;
    this.retry = setTimeout(() => this.connect(), wait * (0.5 + Math.random() / 2));
  }

  // The network is back, or the page is shown again, maybe after sleep: do not wait any longer.
  returned() {
    const shown = globalThis.document?.visibilityState !== "hidden";
    if (this.retry && shown && globalThis.navigator?.onLine !== false && !this.told) this.connect();
    else this.beat();
  }

  beat() {
    if (this.state !== "open") return;
    const silent = performance.now() - this.heardAt;
    if (silent > SILENCE_MS) this.lost(1006, "", this.socket);
    else if (silent > HEARTBEAT_MS / 2) this.write({ type: "ping", id: PING_ID });
  }
}

// `crypto.randomUUID` is for secure contexts alone.
function randomName() {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
