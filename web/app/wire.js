// The last messages, as they went over the wire. Runs of audio are one row.

import { SAMPLE_RATE } from "../client/index.js";
import { t } from "./i18n.js";

const at = (id) => document.getElementById(id);
const KEPT = 120;
const SECRET = new Set(["token", "access_token"]);

export class Wire {
  constructor(talk, notices) {
    this.notices = notices;
    this.rows = [];
    this.began = performance.now();
    this.drawer = at("wire");
    this.button = at("open-wire");
    talk.addEventListener("wire", ({ detail }) => this.take(detail));
    this.button.addEventListener("click", () => this.toggle(this.drawer.hidden));
    at("wire-close").addEventListener("click", () => {
      this.toggle(false);
      this.button.focus();
    });
    at("wire-clear").addEventListener("click", () => {
      this.rows = [];
      this.draw();
    });
    at("wire-copy").addEventListener("click", () => this.copy());
    document.addEventListener("keydown", ({ key }) => {
      if (key === "Escape" && !talk.speaking) this.toggle(false);
    });
  }

  async copy() {
    try {
      await navigator.clipboard.writeText(this.rows.map((row) => this.line(row).join("\t")).join("\n"));
      this.notices.announce(t("copied"));
    } catch {
      this.notices.alert(t("copy_refused"));
    }
  }

  toggle(open) {
    this.drawer.hidden = !open;
    this.button.setAttribute("aria-expanded", String(open));
    if (open) this.draw();
  }

  take({ direction, message, bytes }) {
    const time = (performance.now() - this.began) / 1000;
    const last = this.rows.at(-1);
    if (message.payload) {
      if (last?.audio?.turn === message.turn) {
        last.audio.count += 1;
        last.audio.samples += message.samples;
        last.bytes += bytes;
      } else {
        const { turn, samples } = message;
        this.rows.push({ time, direction, bytes, audio: { turn, samples, count: 1 } });
      }
    } else {
      this.rows.push({ time, direction, bytes, message });
    }
    if (this.rows.length > KEPT) this.rows.shift();
    if (!this.drawer.hidden) this.drawSoon();
  }

  drawSoon() {
    this.waiting ??= setTimeout(() => {
      this.waiting = null;
      this.draw();
    }, 200);
  }

  line({ time, direction, bytes, audio, message }) {
    const words = audio
      ? t("wire_audio", { ...audio, ms: Math.round((1000 * audio.samples) / SAMPLE_RATE) })
      : JSON.stringify(message, (name, value) => (SECRET.has(name) ? "…" : value));
    return [time.toFixed(2), direction === "up" ? "↑" : "↓", words, String(bytes)];
  }

  draw() {
    const rows = [...this.rows].reverse().map((row) => {
      const line = document.createElement("tr");
      line.className = row.audio ? "audio" : row.direction;
      const cells = this.line(row).map((text, i) => {
        const cell = document.createElement("td");
        cell.textContent = text;
        if (i === 1) cell.setAttribute("aria-label", t(`wire_${row.direction}`));
        if (i === 2) cell.className = "message";
        if (i === 3) cell.className = "number";
        return cell;
      });
      line.append(...cells);
      return line;
    });
    at("wire-rows").replaceChildren(...rows);
  }
}
