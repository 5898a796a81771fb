import { local } from "./kept.js";

const KEY = "voxgate.theme";

export class Theme {
  constructor() {
    this.set(local.get(KEY));
    document.getElementById("theme").addEventListener("click", () => {
      const next = this.dark ? "light" : "dark";
      local.set(KEY, next);
      this.set(next);
      document.dispatchEvent(new Event("themechange"));
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
      document.dispatchEvent(new Event("themechange")));
  }

  get dark() {
    const { theme } = document.documentElement.dataset;
    return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  set(theme) {
    if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  }
}
