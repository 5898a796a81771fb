// Puts the parts of the page together.

import { Player } from "../client/index.js";
import { Access } from "./access.js";
import { Captions } from "./captions.js";
import { Chat } from "./chatbot.js";
import { Composer } from "./composer.js";
import { chooseLanguage, switchLanguage, t } from "./i18n.js";
import { Meters } from "./meters.js";
import { Notices } from "./notices.js";
import { Recorder } from "./recorder.js";
import { watchServer } from "./server.js";
import { Setup } from "./setup.js";
import { Sheets } from "./sheets.js";
import { Stage } from "./stage.js";
import { Talk } from "./talk.js";
import { Theme } from "./theme.js";
import { Wave } from "./wave.js";
import { Wire } from "./wire.js";

chooseLanguage();
new Theme();
const player = new Player();
const setup = new Setup();
const talk = new Talk(player, setup);
const notices = new Notices(talk);
const stage = new Stage(talk, notices);
const wave = new Wave(talk);
const meters = new Meters(talk);
new Wire(talk, notices);
new Recorder(talk, notices);
new Sheets();
new Access(talk);
const composer = new Composer(talk, stage, notices);
composer.chat = new Chat(talk, stage, notices);
composer.captions = new Captions(talk, composer, notices);
setup.listenTo(talk);
watchServer();

document.getElementById("language").addEventListener("click", switchLanguage);
document.addEventListener("languagechange", () => {
  setup.show(talk);
  notices.show();
  stage.showStates();
  composer.show();
  meters.describe();
});

// One clock for all that follows the sound; it stands still when nothing sounds.
function follow() {
  const place = talk.position();
  stage.follow(place);
  wave.follow(place);
  composer.captions.follow(place);
  if (talk.speaking) requestAnimationFrame(follow);
  else following = false;
}
let following = false;
talk.addEventListener("turn", () => {
  if (following) return;
  following = true;
  requestAnimationFrame(follow);
});

globalThis.voxgate = { player, talk, wave }; // for the console
document.documentElement.dataset.ready = "";
talk.open();
player.prepare().catch(() => {
  if (!globalThis.AudioWorkletNode) notices.alert(t("no_web_audio"));
});
