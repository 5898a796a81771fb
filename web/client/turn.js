// One turn as its speaker sees it: text going out, captions and audio coming back.

import { CodePointText } from "./codepoints.js";
import { WordTrack } from "./words.js";

/**
 * States: `waiting` (for the first audio), `speaking`, `done` (all audio is here), `heard`,
 * `cancelled`, `failed`, `lost` (its session is gone).
 */
export class Turn {
  constructor(session, format) {
    this.session = session;
    this.format = format;
    this.voice = session.wanted.voice ?? "default";
    this.id = null;
    this.state = "waiting";
    this.written = new CodePointText();
    this.words = new WordTrack();
    this.captions = new Map();
    this.errors = [];
    this.packets = 0;
    this.bytes = 0;
    this.received = 0; // samples, pre-skip included
    this.samples = null; // exact length, once known
    this.sent = 0; // UTF-16 units given to the connection, and of them cut and spoken
    this.cut = 0;
    this.ended = false;
    this.askedAt = null; // performance.now() of its first text
    this.firstPacketMs = null;
    this.firstAudibleMs = null;
    this.spoken = null;
    this.unspoken = null;
  }

  get text() {
    return this.written.text;
  }

  get over() {
    return ["heard", "cancelled", "failed", "lost"].includes(this.state);
  }

  /** More text; a fragment may end anywhere. */
  append(text) {
    if (!text || this.ended || this.over) return;
    this.askedAt ??= performance.now();
    this.written.append(text);
    this.session.post(this, { type: "text.append", text });
  }

  /** Speak the text so far without waiting for more. */
  flush() {
    if (!this.ended && !this.over) this.session.post(this, { type: "text.flush" });
  }

  /** No more text. */
  end() {
    if (this.ended || this.over) return;
    this.ended = true;
    this.session.post(this, { type: "turn.end" });
  }

  /** Pieces with a time, in order. */
  get cues() {
    return [...this.captions.values()].sort((a, b) => a.piece - b.piece);
  }

  /** What was heard of the text up to a sample, to a whole word, and the rest. */
  splitAt(sample) {
    const index = this.words.at(sample);
    const word = this.words.words[index];
    const end = word ? this.written.unit(sample >= word.endSample ? word.end : word.start) : 0;
    return { spoken: this.text.slice(0, end), unspoken: this.text.slice(end) };
  }
}
