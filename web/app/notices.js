// What is said to people in words: the state of the connection, errors, and to screen readers what
// happened. While the page speaks, screen readers are told nothing but errors.

import { known, t } from "./i18n.js";

const at = (id) => document.getElementById(id);
const STATES = { connecting: "connecting", open: "connected", resuming: "resuming", closed: "disconnected" };
const WHY = {
  starting: "starting_engine", restarting: "starting_engine", engine_restarting: "starting_engine",
  draining: "draining", capacity: "full", unreachable: "unreachable",
};
const SHOWN_MS = 9000;

export class Notices {
  constructor(talk) {
    this.talk = talk;
    this.state = "connecting";
    this.reason = null;
    this.waiting = null;
    talk.addEventListener("state", ({ detail }) => {
      this.state = detail.state;
      this.reason = detail.reason;
      if (detail.state === "connecting" && detail.reason === "") this.ask();
      at("resumes").textContent = String(talk.session.link.resumes);
      this.show();
    });
    talk.addEventListener("error", ({ detail }) => this.error(detail));
    talk.addEventListener("turn", () => {
      if (!talk.speaking && this.waiting) {
        at("status").textContent = this.waiting;
        this.waiting = null;
      }
    });
    talk.player.addEventListener("state", () => this.sound());
    talk.addEventListener("lost", ({ detail: { turn } }) => {
      if (!turn.unspoken.trim()) return;
      this.banner(t("lost"), t("rest"), () => talk.speak(turn.unspoken));
    });
    talk.addEventListener("begin", () => this.hide());
    // The sound may only come when someone did something: then one button does it.
    talk.addEventListener("samples", () => this.sound());
  }

  show() {
    at("link").dataset.state = this.state;
    const why = this.state === "connecting" && WHY[this.reason];
    at("link-text").textContent = t(why || STATES[this.state]);
  }

  // A browser does not tell why a connection was refused; the readiness check does.
  async ask() {
    try {
      const told = await (await fetch("health/ready", { cache: "no-store" })).json();
      this.reason = told.reason ?? null;
    } catch {
      this.reason = "unreachable";
    }
    if (this.state === "connecting") this.show();
  }

  /** To screen readers, once nothing is spoken. */
  announce(words) {
    if (this.talk.speaking) this.waiting = words;
    else at("status").textContent = words;
  }

  error({ code, message, hint, request }) {
    if (request === "session.resume") return;
    const own = known(`error_${code}`);
    this.alert(own ?? [message, hint].filter(Boolean).join(" "));
  }

  alert(words) {
    at("alert").textContent = words;
    this.banner(words, t("close"), () => this.hide());
    this.timer = setTimeout(() => this.hide(), SHOWN_MS);
  }

  sound() {
    if (this.talk.player.state === "running" || !this.talk.speaking) {
      if (this.forSound) this.hide();
      return;
    }
    if (this.forSound || this.checking) return;
    // A click that is just being handled brings the sound by itself.
    this.checking = setTimeout(() => {
      this.checking = null;
      if (this.talk.player.state === "running" || !this.talk.speaking) return;
      this.banner(t("sound_off"), t("sound_on"), () => this.talk.unlock());
      this.forSound = true;
    }, 400);
  }

  banner(words, action, act) {
    this.hide();
    at("banner-text").textContent = words;
    at("banner-button").textContent = action;
    at("banner-button").onclick = () => {
      this.hide();
      act();
    };
    at("banner").hidden = false;
  }

  hide() {
    clearTimeout(this.timer);
    this.forSound = false;
    at("banner").hidden = true;
  }
}
