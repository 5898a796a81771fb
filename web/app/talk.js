// The page's one conversation: a session that is opened anew when its format changes.

import { VoiceSession } from "../client/index.js";
import { accessKey } from "./access.js";

const FORWARDED = ["state", "turn", "packet", "samples", "error", "flow", "lost", "wire"];

export class Talk extends EventTarget {
  constructor(player, setup) {
    super();
    this.player = player;
    this.setup = setup;
    this.session = null;
    this.resumes = 0;
  }

  async open() {
    const session = this.make(this.setup.chosen);
    this.session = session;
    for (const type of FORWARDED) {
      session.addEventListener(type, ({ detail }) => {
        if (session === this.session) this.tell(type, detail);
      });
    }
    await session.open();
    this.tell("format", { format: session.format });
  }

  /** A session before the same server, not opened yet. */
  make(options) {
    return new VoiceSession(this.player, { ...options, accessToken: accessKey });
  }

  /** Another format or bit rate: what is spoken now stops. */
  async reopen() {
    this.cancel();
    this.session.close();
    await this.open();
  }

  get speaking() {
    return this.session?.turns.some((turn) => !turn.silenced) ?? false;
  }

  get format() {
    return this.session?.format;
  }

  position() {
    return this.session?.position() ?? null;
  }

  /** A new turn; call it from a click or a key, which lets the sound on. */
  begin(options) {
    this.tell("begin", {});
    this.unlock();
    return this.session.begin(options);
  }

  unlock() {
    // What cannot be heard yet is kept, and one button brings it.
    return this.player.unlock().catch(() => false);
  }

  speak(text, options) {
    const turn = this.begin(options);
    turn.append(text);
    turn.end();
    return turn;
  }

  cancel() {
    this.tell("cancel", {});
    this.session?.cancel();
  }

  update(fields) {
    this.session?.update(fields);
  }

  tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
