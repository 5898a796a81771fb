// The four ways in.

import { t } from "./i18n.js";

const at = (id) => document.getElementById(id);
const MODES = ["type", "live", "chat", "captions"];

export class Composer {
  constructor(talk, stage, notices) {
    this.talk = talk;
    this.notices = notices;
    this.mode = "type";
    this.turn = null; // the live one
    this.sent = "";
    this.field = at("text");
    this.tabs = MODES.map((mode) => at(`mode-${mode}`));
    for (const tab of this.tabs) {
      tab.addEventListener("click", () => this.choose(tab.dataset.mode));
      tab.addEventListener("keydown", (event) => this.arrow(event, tab));
    }
    at("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    at("stop").addEventListener("click", () => this.stop());
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.submit();
      }
    });
    this.field.addEventListener("input", (event) => {
      if (this.mode === "live" && !event.isComposing) this.live();
    });
    this.field.addEventListener("compositionend", () => {
      if (this.mode === "live") this.live();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.busy) this.stop();
    });
    talk.addEventListener("turn", () => this.buttons());
    talk.addEventListener("lost", () => this.endLive());
    stage.onChip = (text) => this.take(text);
  }

  get busy() {
    return this.talk.speaking || this.chat.answering || this.captions.playing;
  }

  arrow(event, tab) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = (this.tabs.indexOf(tab) + step + MODES.length) % MODES.length;
    this.choose(MODES[next]);
    this.tabs[next].focus();
  }

  choose(mode) {
    if (mode === this.mode) return;
    this.endLive();
    this.mode = mode;
    at("composer").dataset.mode = mode;
    for (const tab of this.tabs) {
      const chosen = tab.dataset.mode === mode;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
    }
    at("compose").setAttribute("aria-labelledby", `mode-${mode}`);
    at("drop").hidden = mode !== "captions";
    at("endpoint").hidden = mode !== "chat";
    this.field.parentElement.hidden = mode === "captions";
    // Corrections of a keyboard would come after the word was said.
    this.field.setAttribute("autocorrect", mode === "live" ? "off" : "on");
    this.field.spellcheck = mode !== "live";
    this.show();
  }

  /** Labels that depend on the mode. */
  show() {
    at("mode-hint").dataset.t = `hint_${this.mode}`;
    at("mode-hint").textContent = t(`hint_${this.mode}`);
    if (this.mode !== "captions") this.field.placeholder = t(`placeholder_${this.mode}`);
    this.buttons();
    this.captions.show();
  }

  buttons() {
    const label = { type: "speak", live: "end_turn", chat: "ask", captions: "speak" }[this.mode];
    at("speak").firstElementChild.textContent = t(label);
    at("speak").disabled = this.mode === "captions" && !this.captions.cues;
    at("stop").disabled = !this.busy;
  }

  /** A text to start from. */
  take(text) {
    this.choose("type");
    this.field.value = text;
    this.submit();
  }

  submit() {
    if (this.mode === "captions") {
      this.captions.start();
    } else if (this.mode === "live") {
      this.endLive();
    } else if (this.field.value.trim()) {
      const text = this.field.value;
      if (this.mode === "chat") this.chat.ask(text);
      else this.talk.speak(text);
      this.field.value = "";
    }
    this.buttons();
  }

  // What was sent may be spoken already, so it stays as it is.
  live() {
    const { value } = this.field;
    if (!value.startsWith(this.sent)) {
      this.notices.alert(t("live_locked"));
      let same = 0;
      while (same < value.length && value[same] === this.sent[same]) same += 1;
      const added = value.length > this.sent.length ? value.slice(this.sent.length) : "";
      this.field.value = this.sent + added;
    }
    const more = this.field.value.slice(this.sent.length);
    if (!more) return;
    if (!this.turn || this.turn.over || this.turn.silenced) this.turn = this.talk.begin();
    this.turn.append(more);
    this.sent = this.field.value;
    this.buttons();
  }

  endLive() {
    this.turn?.end();
    this.turn = null;
    if (this.sent) this.field.value = "";
    this.sent = "";
  }

  /** Barge in. */
  stop() {
    this.chat.stop();
    this.captions.stop();
    this.talk.cancel();
    this.endLive();
    this.buttons();
  }
}
