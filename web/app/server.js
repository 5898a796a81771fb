// Figures of the server, from its Prometheus page; looked at only while somebody sees them.

import { accessKey } from "./access.js";

const EVERY_MS = 4000;
const at = (id) => document.getElementById(id);

function figures(text) {
  const found = new Map();
  for (const [, name, value] of text.matchAll(/^(\w+) ([-+.\w]+)$/gm)) found.set(name, Number(value));
  return found;
}

async function look() {
  const key = accessKey();
  const headers = key ? { authorization: `Bearer ${key}` } : {};
  const response = await fetch("metrics", { cache: "no-store", headers });
  if (!response.ok) return null;
  const told = figures(await response.text());
  const queries = told.get("voxgate_engine_prefix_cache_queries_total") ?? 0;
  const hits = told.get("voxgate_engine_prefix_cache_hits_total") ?? 0;
  return {
    sessions: told.get("voxgate_sessions"),
    running: told.get("voxgate_engine_running"),
    cache: queries ? hits / queries : null,
  };
}

function show(seen) {
  at("sessions").textContent = seen?.sessions ?? "–";
  at("running").textContent = seen?.running ?? "–";
  at("cache").textContent = seen?.cache == null ? "–" : `${(100 * seen.cache).toFixed(1)}%`;
  at("cache-meter").value = seen?.cache ?? 0;
}

export function watchServer() {
  const turn = async () => {
    if (document.visibilityState === "visible") show(await look().catch(() => null));
    setTimeout(turn, EVERY_MS);
  };
  turn();
}
