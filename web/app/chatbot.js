// Streams the tokens of a chat endpoint, or a prepared answer, into a turn.

import { ChatError, chatTokens } from "../client/index.js";
import { language, t } from "./i18n.js";
import { local, tab } from "./kept.js";
import { CANNED } from "./samples.js";

const at = (id) => document.getElementById(id);
const KEY = "voxgate.chat";
const SYSTEM = "Your answers are read aloud. Answer in one to four short, plain sentences, in the language of the question, without lists or markup.";
const REMEMBERED = 20;
const TOKEN_MS = 35;

export class Chat {
  constructor(talk, stage, notices) {
    this.talk = talk;
    this.stage = stage;
    this.notices = notices;
    this.messages = [];
    this.answering = null;
    this.count = 0;
    const kept = local.object(KEY);
    at("chat-url").value = kept.url ?? "";
    at("chat-model").value = kept.model ?? "";
    at("chat-key").value = tab.get(KEY) ?? "";
    for (const id of ["chat-url", "chat-model", "chat-key"]) {
      at(id).addEventListener("change", () => this.keep());
    }
    document.addEventListener("languagechange", () => this.show());
    this.show();
  }

  get endpoint() {
    return { url: at("chat-url").value.trim(), model: at("chat-model").value.trim(), key: at("chat-key").value };
  }

  keep() {
    const { url, model, key } = this.endpoint;
    local.set(KEY, JSON.stringify({ url, model }));
    tab.set(KEY, key);
    this.show();
  }

  show() {
    const { url, model } = this.endpoint;
    at("endpoint-now").textContent = url ? [model, url].filter(Boolean).join(" · ") : t("canned");
  }

  async ask(question) {
    this.stop();
    this.stage.question(question);
    this.messages.push({ role: "user", content: question });
    const stopping = new AbortController();
    this.answering = stopping;
    // Asking while the answer is still spoken is an interruption.
    const turn = this.talk.begin({ interrupt: this.talk.speaking });
    this.remember(turn);
    const { url } = this.endpoint;
    const tokens = url
      ? chatTokens(this.endpoint, this.history(), stopping.signal)
      : this.canned(question, stopping.signal);
    try {
      for await (const token of tokens) {
        if (stopping.signal.aborted || turn.over || turn.silenced) break;
        turn.append(token);
      }
    } catch (failure) {
      if (!stopping.signal.aborted) this.failed(failure);
    } finally {
      turn.end();
      if (this.answering === stopping) this.answering = null;
      this.talk.tell("turn", { turn });
    }
  }

  history() {
    return [{ role: "system", content: SYSTEM }, ...this.messages.slice(-REMEMBERED)];
  }

  // The bot knows of its answer what was heard.
  remember(turn) {
    const onTurn = ({ detail }) => {
      if (detail.turn !== turn || !turn.over) return;
      this.talk.removeEventListener("turn", onTurn);
      const content = turn.spoken ?? turn.text;
      if (content) this.messages.push({ role: "assistant", content });
    };
    this.talk.addEventListener("turn", onTurn);
  }

  async *canned(question, signal) {
    const answers = CANNED[/\p{sc=Han}/u.test(question) ? "zh" : language()];
    const answer = answers[this.count % answers.length];
    this.count += 1;
    // As a tokenizer would cut it.
    for (const token of answer.match(/\s?[\p{L}\p{N}]{1,4}|[^\p{L}\p{N}]/gu)) {
      await new Promise((done) => setTimeout(done, TOKEN_MS));
      if (signal.aborted) return;
      yield token;
    }
  }

  failed(failure) {
    const code = failure instanceof ChatError ? failure.code : "failed";
    this.notices.alert(t(`chat_${code}`, { detail: failure.detail || failure.message }));
    at("endpoint").open = true;
  }

  stop() {
    this.answering?.abort();
    this.answering = null;
  }
}
