// Latencies, the sound in hand, and their history.

import { colours, fresh } from "./canvas.js";
import { t } from "./i18n.js";

const at = (id) => document.getElementById(id);
const SPAN_MS = 30000;
const EVERY_MS = 100;
const TURNS_KEPT = 24;

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length ? Math.round(sorted[Math.floor(sorted.length / 2)]) : 0;
}

export class Meters {
  constructor(talk) {
    this.talk = talk;
    this.points = []; // { at, lead, gap }
    this.turns = []; // { turn, packet, sound }
    this.gaps = 0;
    this.recorded = 0;
    this.report = null;
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
    talk.player.addEventListener("report", ({ detail }) => this.take(detail));
    talk.addEventListener("turn", ({ detail: { turn } }) => this.latencies(turn));
    new ResizeObserver(() => this.draw()).observe(at("strip"));
    document.addEventListener("themechange", () => this.draw());
  }

  take(report) {
    const now = performance.now();
    const gap = report.underruns > this.gaps;
    this.gaps = report.underruns;
    this.report = report;
    if (!gap && now - this.recorded < EVERY_MS) return;
    this.recorded = now;
    this.points.push({ at: now, lead: report.lead, gap, target: report.target });
    while (this.points[0].at < now - SPAN_MS - 1000) this.points.shift();
    this.run();
  }

  // Moves on for as long as something is to be seen.
  run() {
    if (this.timer) return;
    this.timer = setInterval(() => {
      this.draw();
      const last = this.points.at(-1);
      if (!last || performance.now() - last.at > SPAN_MS) {
        clearInterval(this.timer);
        this.timer = null;
      }
    }, this.calm.matches ? 1000 : EVERY_MS);
  }

  latencies(turn) {
    if (turn.firstPacketMs === null) return;
    const { turns } = this;
    let row = turns.find((each) => each.turn === turn);
    if (!row) {
      row = { turn };
      turns.push(row);
      if (turns.length > TURNS_KEPT) turns.shift();
    }
    const before = row.sound;
    row.packet = turn.firstPacketMs;
    row.sound = turn.firstAudibleMs;
    if (turn.over) row.turn = null;
    at("first-packet").textContent = `${Math.round(row.packet)} ms`;
    at("first-sound").textContent = row.sound === null ? "–" : `${Math.round(row.sound)} ms`;
    if (before !== row.sound || row.sound === null) this.drawHistory();
    if (turn.over) this.describe();
  }

  /** In words, for those who do not see the charts. */
  describe() {
    const { turns } = this;
    at("strip").setAttribute("aria-label", t("strip_of", {
      lead: (this.report?.lead ?? 0).toFixed(1), gaps: this.gaps,
    }));
    if (!turns.length) return;
    at("history").setAttribute("aria-label", t("history_of", {
      turns: turns.length,
      packet: median(turns.map((row) => row.packet)),
      sound: median(turns.map((row) => row.sound).filter((ms) => ms != null)),
    }));
  }

  draw() {
    this.figures();
    this.drawStrip();
    this.drawHistory();
  }

  figures() {
    const { report } = this;
    if (!report) return;
    const set = (id, text) => {
      if (at(id).textContent !== text) at(id).textContent = text;
    };
    set("lead", `${(this.talk.speaking ? report.lead : 0).toFixed(2)} s`);
    set("underruns", String(this.gaps));
    set("jitter", `${Math.round(report.target * 1000)} ms`);
    set("output", `${Math.round(this.talk.player.latency * 1000)} ms`);
  }

  drawStrip() {
    const frame = fresh(at("strip"));
    if (!frame) return;
    const { context, width, height } = frame;
    const paint = colours();
    const now = performance.now();
    const most = Math.max(1, ...this.points.map(({ lead }) => lead));
    const top = [1, 2, 4, 8, 15, 30, 60, 120].find((value) => value >= most) ?? most;
    const floor = height - 16;
    const x = (time) => width * (1 - (now - time) / SPAN_MS);
    const y = (lead) => floor - (floor - 14) * (lead / top);
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = paint.soft;
    context.strokeStyle = paint.line;
    context.lineWidth = 1;
    for (const lead of [0, top / 2, top]) {
      context.beginPath();
      context.moveTo(0, Math.round(y(lead)) + 0.5);
      context.lineTo(width, Math.round(y(lead)) + 0.5);
      context.stroke();
      if (lead) context.fillText(`${lead} s`, 2, y(lead) - 3);
    }
    for (let seconds = 10; seconds < 30; seconds += 10) {
      context.fillText(`−${seconds}`, x(now - seconds * 1000) - 10, height - 3);
    }
    if (this.points.length > 1) {
      const path = new Path2D();
      path.moveTo(x(this.points[0].at), floor);
      for (const { at: time, lead } of this.points) path.lineTo(x(time), y(lead));
      const line = new Path2D(path);
      path.lineTo(x(this.points.at(-1).at), floor);
      context.globalAlpha = 0.22;
      context.fillStyle = paint.accent;
      context.fill(path);
      context.globalAlpha = 1;
      context.strokeStyle = paint.accent;
      context.lineWidth = 2;
      context.stroke(line);
    }
    context.fillStyle = paint.warn;
    for (const { at: time, gap } of this.points) {
      if (!gap) continue;
      context.fillRect(x(time) - 1, 4, 2, floor - 4);
      context.beginPath();
      context.arc(x(time), 5, 3.5, 0, 2 * Math.PI);
      context.fill();
    }
  }

  drawHistory() {
    const frame = fresh(at("history"));
    if (!frame) return;
    const { context, width, height } = frame;
    const paint = colours();
    const most = Math.max(200, ...this.turns.map(({ packet, sound }) => Math.max(packet, sound ?? 0)));
    const top = [200, 500, 1000, 2000, 5000, 10000].find((value) => value >= most) ?? most;
    const y = (ms) => height - 4 - (height - 20) * Math.min(1, ms / top);
    context.font = "11px system-ui, sans-serif";
    context.strokeStyle = paint.line;
    context.fillStyle = paint.soft;
    for (const ms of [0, top / 2, top]) {
      context.beginPath();
      context.moveTo(0, Math.round(y(ms)) + 0.5);
      context.lineTo(width, Math.round(y(ms)) + 0.5);
      context.stroke();
      if (ms) context.fillText(`${ms} ms`, 2, y(ms) - 3);
    }
    const left = 48;
    const slot = (width - left) / TURNS_KEPT;
    this.turns.forEach(({ packet, sound }, i) => {
      const from = left + i * slot;
      if (sound != null) {
        context.fillStyle = paint.cut;
        context.fillRect(from, y(sound), slot - 3, y(0) - y(sound));
      }
      context.fillStyle = paint.accent;
      context.fillRect(from, y(packet), slot - 3, y(0) - y(packet));
    });
  }
}
