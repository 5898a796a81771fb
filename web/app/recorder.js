// Keeps the packets of the last turn, and gives it as files.

import { makeDecoder, oggOpus, wav, webvtt } from "../client/index.js";
import { t } from "./i18n.js";

const at = (id) => document.getElementById(id);
const MOST_BYTES = 64 * 2 ** 20;

export class Recorder {
  constructor(talk, notices) {
    this.talk = talk;
    this.notices = notices;
    this.turn = null;
    this.packets = [];
    talk.addEventListener("packet", ({ detail }) => this.take(detail));
    talk.addEventListener("turn", () => this.show());
    document.addEventListener("languagechange", () => this.show());
    at("save-ogg").addEventListener("click", () => this.save("ogg", this.ogg()));
    at("save-wav").addEventListener("click", async () => this.save("wav", await this.wav()));
    at("save-vtt").addEventListener("click", () => this.save("vtt", webvtt(this.turn)));
    this.show();
  }

  take({ turn, packet }) {
    if (turn !== this.turn) {
      this.turn = turn;
      this.packets = [];
      this.audio = this.talk.session.started.audio;
    }
    if (turn.bytes < MOST_BYTES) this.packets.push(packet);
  }

  show() {
    const ready = Boolean(this.turn && this.packets.length &&
      (this.turn.over || this.turn.state === "done"));
    const opus = this.turn?.format === "opus";
    const titles = { ogg: opus || !this.turn ? "save_ogg" : "save_ogg_opus_only", wav: "save_wav", vtt: "save_vtt" };
    for (const [kind, title] of Object.entries(titles)) {
      const button = at(`save-${kind}`);
      button.disabled = !ready || (kind === "ogg" && !opus);
      button.title = t(title);
      button.setAttribute("aria-label", t(title));
    }
  }

  ogg() {
    return oggOpus(this.packets, {
      preSkip: this.audio.pre_skip,
      length: this.turn.samples ?? undefined,
    });
  }

  async wav() {
    const parts = [];
    const fail = (problem) => this.notices.alert(problem.message);
    const decoder = makeDecoder(this.turn.format, this.audio, (part) => parts.push(part), fail);
    for (const packet of this.packets) decoder.push(packet);
    await decoder.finish().catch(fail);
    return wav(parts);
  }

  save(kind, blob) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `voxgate-${new Date().toISOString().slice(0, 19).replaceAll(":", "-")}.${kind}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
}
