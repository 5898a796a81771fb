// Servers that face others ask for a key; it is kept until the tab is closed.

import { tab } from "./kept.js";

const KEY = "voxgate.key";
const REFUSED = new Set(["unauthorized", "forbidden"]);
const at = (id) => document.getElementById(id);

export function accessKey() {
  return tab.get(KEY);
}

export class Access {
  constructor(talk) {
    const dialog = at("access");
    talk.addEventListener("error", ({ detail: { code } }) => {
      if (!REFUSED.has(code) || dialog.open) return;
      tab.delete(KEY);
      dialog.showModal();
    });
    dialog.addEventListener("close", () => {
      const key = at("access-key").value.trim();
      at("access-key").value = "";
      if (!key) return;
      tab.set(KEY, key);
      talk.reopen();
    });
  }
}
