// The text of the turns, with the word that is heard.

import { SAMPLE_RATE } from "../client/index.js";
import { language, t } from "./i18n.js";
import { CHIPS } from "./samples.js";
import { readable } from "./setup.js";

const KEPT = 12;
const at = (id) => document.getElementById(id);

function make(tag, className, text = "") {
  const element = document.createElement(tag);
  element.className = className;
  element.textContent = text;
  return element;
}

export class Stage {
  constructor(talk, notices) {
    this.notices = notices;
    this.shown = new Map(); // turn -> its elements and what they show
    this.closed = new WeakSet();
    this.scroll = at("scroll");
    this.pinned = true;
    this.scroll.addEventListener("scroll", () => {
      const { scrollTop, scrollHeight, clientHeight } = this.scroll;
      this.pinned = scrollHeight - scrollTop - clientHeight < 60;
    });
    talk.addEventListener("turn", ({ detail: { turn } }) => this.update(turn));
    this.chips();
    document.addEventListener("languagechange", () => this.chips());
  }

  chips() {
    at("chips").replaceChildren(...CHIPS.map(({ label, text }) => {
      const chip = make("button", "chip", label[language()]);
      chip.type = "button";
      chip.addEventListener("click", () => this.onChip?.(text[language()]));
      return chip;
    }));
  }

  /** Show what a person asked, above the turn that answers. */
  question(words) {
    const item = make("li", "turn question");
    item.append(make("p", "meta", t("you")), make("p", "text", words));
    this.add(item);
  }

  add(item) {
    at("welcome").hidden = true;
    at("turns").append(item);
    while (at("turns").children.length > KEPT) at("turns").firstChild.remove();
    this.down();
  }

  down() {
    if (this.pinned) this.scroll.scrollTop = this.scroll.scrollHeight;
  }

  update(turn) {
    if (this.closed.has(turn)) return;
    const shown = this.shown.get(turn) ?? this.open(turn);
    this.write(shown, turn);
    shown.item.dataset.state = turn.state;
    this.state(shown, turn);
    if (turn.over) this.close(shown, turn);
  }

  open(turn) {
    const item = make("li", "turn");
    const shown = {
      item,
      meta: make("p", "meta"),
      heard: make("span", "heard"),
      now: make("mark", "now"),
      ahead: make("span", "ahead"),
      length: 0,
      word: -1,
    };
    const text = make("p", "text");
    text.append(shown.heard, shown.now, shown.ahead);
    item.append(shown.meta, text);
    this.shown.set(turn, shown);
    this.add(item);
    return shown;
  }

  /** Text may have grown. */
  write(shown, turn) {
    if (turn.text.length === shown.length) return;
    shown.ahead.append(turn.text.slice(shown.length));
    shown.ahead.normalize();
    shown.length = turn.text.length;
    this.down();
  }

  state({ meta }, turn) {
    const parts = [readable(turn.voice)];
    const seconds = ((turn.heardSamples ?? 0) / SAMPLE_RATE).toFixed(1);
    parts.push(t(`state_${turn.state}`, { seconds }));
    if (turn.firstAudibleMs !== null) {
      parts.push(t("sound_after", { ms: Math.round(turn.firstAudibleMs) }));
    }
    meta.textContent = parts.join(" · ");
  }

  showStates() {
    for (const [turn, shown] of this.shown) this.state(shown, turn);
  }

  /** The word at the place that is heard. */
  follow(place) {
    for (const [turn, shown] of this.shown) {
      if (!turn.over) this.write(shown, turn);
    }
    if (!place || place.turn.over) return;
    const { turn, sample } = place;
    const shown = this.shown.get(turn);
    if (!shown || turn.silenced) return;
    const index = turn.words.at(sample);
    const word = turn.words.words[index];
    if (!word || (shown.from === word.start && shown.until === word.end)) return;
    shown.from = word.start;
    shown.until = word.end;
    const start = turn.written.unit(word.start);
    const end = turn.written.unit(word.end);
    this.split(shown, turn, start, end);
    shown.now.dataset.start = word.start;
    this.view(shown.now);
  }

  split(shown, turn, start, end) {
    shown.heard.textContent = turn.text.slice(0, start);
    shown.now.textContent = turn.text.slice(start, end);
    shown.ahead.textContent = turn.text.slice(end, shown.length);
  }

  // Keep the word in view, unless somebody scrolled away to read.
  view(element) {
    const box = element.getBoundingClientRect();
    const frame = this.scroll.getBoundingClientRect();
    const below = box.bottom - frame.bottom + 40;
    if (below > 0 && (this.pinned || below < 160)) this.scroll.scrollTop += below;
  }

  close(shown, turn) {
    this.write(shown, turn);
    const text = shown.heard.parentElement;
    const spoken = turn.spoken ?? "";
    const rest = turn.text.slice(spoken.length);
    text.replaceChildren(make("span", "heard", spoken));
    if (rest.trim()) {
      const unsaid = make("del", "unsaid", rest);
      text.append(unsaid);
    }
    this.shown.delete(turn);
    this.closed.add(turn);
    if (!turn.text.trim()) {
      shown.item.remove();
      return;
    }
    if (turn.state === "cancelled") {
      this.notices.announce(t("stopped_turn", { spoken, unspoken: rest }));
    } else if (turn.state === "heard") {
      this.notices.announce(t("said_turn"));
    } else if (turn.state === "failed" && !turn.errors.length) {
      this.notices.alert(t("nothing"));
    }
  }
}
