// A canvas in the pixels of the screen and the colours of the page.

// Registered, a colour is read as what it comes to, light or dark.
for (const name of ["ink", "soft", "line", "faint", "accent", "cut", "warn"]) {
  CSS.registerProperty?.({ name: `--${name}`, syntax: "<color>", inherits: true, initialValue: "gray" });
}

/** Context, width and height in CSS pixels, cleared; null while it is not shown. */
export function fresh(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!width || !height) return null;
  const ratio = globalThis.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

/** The colours of the page by the names of its custom properties. */
export function colours() {
  const style = getComputedStyle(document.documentElement);
  return new Proxy({}, { get: (_, name) => style.getPropertyValue(`--${String(name)}`).trim() });
}
