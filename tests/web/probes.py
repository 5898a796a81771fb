"""What tests put into a page to look at it from outside: the sound at its output, the words that it
highlights, the wire."""

PROBES = r"""
globalThis.probes = {
  breaches: [],
  wire: [],

  // The loudest sample of the last 5 ms at the output, looked at every 4 ms or so.
  listen() {
    const { context, analyser } = voxgate.player;
    const tap = context.createAnalyser();
    tap.fftSize = 128;
    analyser.connect(tap);
    const window = new Float32Array(tap.fftSize);
    const heard = [];
    const look = () => {
      tap.getFloatTimeDomainData(window);
      const peak = window.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
      heard.push({ at: performance.now(), peak });
    };
    look();
    const timer = setInterval(look, 4);
    return { heard, stop: () => (clearInterval(timer), analyser.disconnect(tap)) };
  },

  // Energy between two frequencies, as a share of all that sounds now; null in silence.
  band(from, to) {
    const { context, analyser } = voxgate.player;
    const levels = new Float32Array(analyser.frequencyBinCount);
    analyser.getFloatFrequencyData(levels);
    const width = context.sampleRate / 2 / levels.length;
    let all = 0, inside = 0;
    levels.forEach((level, i) => {
      const power = 10 ** (level / 10);
      all += power;
      if (i * width >= from && i * width <= to) inside += power;
    });
    return all > 1e-7 ? inside / all : null;
  },

  // Each word as it is highlighted: when, and which it is.
  highlights() {
    const seen = [];
    let last = null;
    const observer = new MutationObserver(() => {
      const now = document.querySelector(".now");
      if (!now || now.dataset.start === undefined) return;
      const key = `${now.dataset.start}`;
      const word = { at: performance.now(), start: Number(key), text: now.textContent };
      if (key !== last) seen.push(word);
      last = key;
    });
    const everything = { subtree: true, childList: true, attributes: true };
    observer.observe(document.getElementById("turns"), everything);
    return seen;
  },

  // Samples as they are decoded, of all turns.
  samples() {
    const parts = [];
    voxgate.talk.addEventListener("samples", ({ detail }) => parts.push(...detail.samples));
    return parts;
  },
};
document.addEventListener("securitypolicyviolation", (event) =>
  probes.breaches.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`));
"""
