// The interface in two languages. Elements say what they hold: data-t, data-t-label,
// data-t-placeholder.

import { local } from "./kept.js";
import { STRINGS } from "./strings.js";

const KEY = "voxgate.language";
let current = "en";

export function language() {
  return current;
}

/** The string of a key, `{name}` filled in. */
export function t(key, values = {}) {
  const text = STRINGS[current][key] ?? STRINGS.en[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
}

/** A string that may be missing. */
export function known(key) {
  return STRINGS[current][key];
}

export function chooseLanguage(remembered = local.get(KEY)) {
  const wanted = remembered ?? (navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
  current = wanted === "zh" ? "zh" : "en";
  apply();
}

export function switchLanguage() {
  current = current === "en" ? "zh" : "en";
  local.set(KEY, current);
  apply();
  document.dispatchEvent(new Event("languagechange"));
}

function apply() {
  document.documentElement.lang = current === "zh" ? "zh-CN" : "en";
  for (const element of document.querySelectorAll("[data-t]")) {
    element.textContent = t(element.dataset.t);
  }
  for (const element of document.querySelectorAll("[data-t-label]")) {
    element.setAttribute("aria-label", t(element.dataset.tLabel));
  }
  for (const element of document.querySelectorAll("[data-t-placeholder]")) {
    element.placeholder = t(element.dataset.tPlaceholder);
  }
  const other = document.getElementById("language");
  other.textContent = current === "en" ? "中文" : "English";
  other.lang = current === "en" ? "zh-CN" : "en";
}
