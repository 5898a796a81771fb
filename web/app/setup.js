// Voice, speed, language, format: chosen by people, remembered, told to the session.

import { accessKey } from "./access.js";
import { t } from "./i18n.js";
import { local } from "./kept.js";

const KEY = "voxgate.setup";
const VOICES = "voxgate.voices";
const TONGUES = { en: "EN", zh: "中" };
const at = (id) => document.getElementById(id);

export class Setup {
  constructor() {
    this.chosen = {
      voice: "default", speed: 1, language: "auto", format: "auto", bitrate: 32000,
      ...local.object(KEY),
    };
    // What the server said of its voices the last time, so that nothing moves when it says it again.
    const { ids, about, speeds } = local.object(VOICES);
    this.voices = ids ?? ["default"];
    this.about = new Map(about);
    if (speeds) this.limit(speeds);
    at("speed").value = this.chosen.speed;
    at("spoken").value = this.chosen.language;
    at("format").value = this.chosen.format;
    at("bitrate").value = this.chosen.bitrate;
    if (ids) this.reveal();
    this.fill();
    this.showSpeed();
  }

  listenTo(talk) {
    this.talk = talk;
    at("speed").addEventListener("input", () => {
      this.choose({ speed: Number(at("speed").value) });
      this.showSpeed();
    });
    at("spoken").addEventListener("change", () => this.choose({ language: at("spoken").value }));
    for (const [id, read] of [["format", String], ["bitrate", Number]]) {
      at(id).addEventListener("change", () => {
        this.keep({ [id]: read(at(id).value) });
        talk.reopen();
      });
    }
    talk.addEventListener("state", ({ detail: { state, started, reason } }) => {
      // Without a server the controls are as they were left.
      if (state !== "open" || !started) {
        if (state !== "connecting" || reason !== undefined) this.reveal();
        return;
      }
      this.limit([Math.max(0.5, started.limits.min_speed), Math.min(2, started.limits.max_speed)]);
      const voices = ["default", ...started.voices.filter((voice) => voice !== "default")];
      const known = voices.join() === this.voices.join();
      this.voices = voices;
      if (!known) this.fill();
      this.remember();
      this.reveal();
      if (!known || !this.asked) this.ask();
    });
    talk.addEventListener("error", ({ detail }) => {
      // A voice that was remembered and is not there any more must not lock the page out.
      if (detail.code === "unknown_voice" && this.chosen.voice !== "default") {
        this.keep({ voice: "default" });
        this.fill();
        talk.reopen();
      }
    });
    talk.addEventListener("format", () => this.show(talk));
    talk.addEventListener("begin", () => this.stopPreview());
  }

  limit(speeds) {
    [at("speed").min, at("speed").max] = speeds;
    this.speeds = speeds;
  }

  remember() {
    local.set(VOICES, JSON.stringify({ ids: this.voices, about: [...this.about], speeds: this.speeds }));
  }

  reveal() {
    at("setup").dataset.known = "";
  }

  choose(fields) {
    this.keep(fields);
    this.talk.update(fields);
  }

  keep(fields) {
    Object.assign(this.chosen, fields);
    local.set(KEY, JSON.stringify(this.chosen));
  }

  show(talk) {
    const { format } = talk;
    const chosen = this.chosen.format !== "auto";
    at("bitrate").disabled = format !== "opus";
    at("format-note").textContent = t(
      format === "pcm_s16le" ? (chosen ? "note_pcm_chosen" : "note_pcm") : `note_${format}`,
    );
    at("decoder").textContent = { opus: "WebCodecs", pcm_s16le: "PCM", mulaw: "µ-law" }[format];
    this.labels();
  }

  showSpeed() {
    at("speed-value").textContent = `${Number(at("speed").value).toFixed(2)}×`;
  }

  fill() {
    const rows = this.voices.map((id) => {
      const row = document.createElement("div");
      row.className = "voice";
      const label = document.createElement("label");
      const radio = Object.assign(document.createElement("input"), {
        type: "radio", name: "voice", value: id, checked: id === this.chosen.voice,
      });
      radio.addEventListener("change", () => this.choose({ voice: id }));
      const name = document.createElement("span");
      name.textContent = readable(id);
      const tongues = document.createElement("small");
      const { languages, description } = this.about.get(id) ?? {};
      tongues.textContent = (languages ?? []).map((each) => TONGUES[each] ?? each).join(" ");
      label.title = description ?? "";
      label.append(radio, name, tongues);
      const play = Object.assign(document.createElement("button"), {
        type: "button", className: "quiet icon preview",
      });
      play.dataset.voice = id;
      const sign = document.createElement("span");
      sign.setAttribute("aria-hidden", "true");
      sign.textContent = "▶";
      play.append(sign);
      play.addEventListener("click", () => this.preview(id, play));
      row.append(label, play);
      return row;
    });
    at("voices").replaceChildren(...rows);
    this.labels();
  }

  async ask() {
    const key = accessKey();
    const headers = key ? { authorization: `Bearer ${key}` } : {};
    let told;
    try {
      const answer = await fetch("v1/voices", { headers });
      if (!answer.ok) return;
      told = await answer.json();
    } catch {
      return; // The connection went away: it is asked again once it is back.
    }
    const before = JSON.stringify([...this.about]);
    for (const voice of told.voices) {
      const languages = voice.verified_languages.map(({ language }) => language);
      this.about.set(voice.voice_id, { languages, description: voice.description });
    }
    this.asked = true;
    this.remember();
    // Filled anew it would lose the focus of who chooses just then.
    if (JSON.stringify([...this.about]) !== before) this.fill();
  }

  labels() {
    for (const button of document.querySelectorAll(".preview")) {
      button.setAttribute("aria-label", t("preview", { voice: readable(button.dataset.voice) }));
    }
  }

  // A session of its own: the conversation keeps its turns and its voice.
  async preview(voice, button) {
    const again = this.previewing?.button === button;
    this.stopPreview();
    if (again || this.talk.speaking) return;
    const session = this.talk.make({ ...this.chosen, voice });
    this.previewing = { session, button };
    button.setAttribute("aria-pressed", "true");
    session.addEventListener("turn", ({ detail: { turn } }) => {
      if (turn.over && this.previewing?.session === session) this.stopPreview();
    });
    this.talk.unlock();
    await session.open();
    session.speak(t("preview_text"));
  }

  stopPreview() {
    const { session, button } = this.previewing ?? {};
    this.previewing = null;
    session?.close();
    button?.removeAttribute("aria-pressed");
  }
}

/** `jf_gongitsune` is called Gongitsune. */
export function readable(id) {
  const name = id.replace(/^[a-z]{2}_/, "").replaceAll("_", " ");
  return name.charAt(0).toUpperCase() + name.slice(1);
}
