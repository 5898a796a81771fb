// Servers that face others ask for a key; it is kept until the tab is closed.

const KEY = "voxgate.key";
const REFUSED = new Set(["unauthorized", "forbidden"]);
const at = (id) => document.getElementById(id);

export function accessKey() {
  return sessionStorage.getItem(KEY);
}

export class Access {
  constructor(talk) {
    const dialog = at("access");
    talk.addEventListener("error", ({ detail: { code } }) => {
      if (!REFUSED.has(code) || dialog.open) return;
      sessionStorage.removeItem(KEY);
      dialog.showModal();
    });
    dialog.addEventListener("close", () => {
      const key = at("access-key").value.trim();
      at("access-key").value = "";
      if (!key) return;
      sessionStorage.setItem(KEY, key);
      talk.reopen();
    });
  }
}
