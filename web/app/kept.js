// What the browser keeps for the page: `local` for good, `tab` until the tab is closed. A browser that
// keeps nothing, for privacy or for want of room, loses choices and nothing else.

class Kept {
  constructor(store) {
    this.store = store;
  }

  get(key) {
    try {
      return this.store().getItem(key);
    } catch {
      return null;
    }
  }

  set(key, value) {
    try {
      this.store().setItem(key, value);
    } catch {
      // Full or forbidden.
    }
  }

  delete(key) {
    try {
      this.store().removeItem(key);
    } catch {
      // Forbidden: there is nothing.
    }
  }

  /** A JSON object; empty where there is none, or something else. */
  object(key) {
    try {
      return Object(JSON.parse(this.get(key)));
    } catch {
      return {};
    }
  }
}

export const local = new Kept(() => localStorage);
export const tab = new Kept(() => sessionStorage);
