// WebVTT and SubRip files as cues: { start, end } in seconds and { text } without markup.

const TIMES = /^\s*((?:\d+:)?\d{1,2}:\d{2}[.,]\d{1,3})\s+-->\s+((?:\d+:)?\d{1,2}:\d{2}[.,]\d{1,3})/;
const ENTITIES = { "&amp;": "&", "&lt;": "<", "&gt;": ">", "&nbsp;": " ", "&lrm;": "", "&rlm;": "" };

function seconds(stamp) {
  return stamp.replace(",", ".").split(":").reduce((sum, part) => 60 * sum + Number(part), 0);
}

function plain(line) {
  return line
    .replace(/<[^>]*>|\{\\[^}]*\}/g, "")
    .replace(/&(?:amp|lt|gt|nbsp|lrm|rlm);/g, (found) => ENTITIES[found])
    .trim();
}

/**
 * The cues of a file, in time order. A line that only repeats the cue before (captions that roll
 * up) is left out. Throws `SyntaxError` when there is no cue in it.
 */
export function parseSubtitles(source) {
  const blocks = source.replace(/^\ufeff/, "").replace(/\r\n?/g, "\n").split(/\n{2,}/);
  const cues = [];
  for (const block of blocks) {
    const lines = block.split("\n");
    const at = lines.findIndex((line) => TIMES.test(line));
    if (at < 0) continue;
    const [, start, end] = lines[at].match(TIMES);
    const text = lines.slice(at + 1).map(plain).filter(Boolean);
    if (text.length) cues.push({ start: seconds(start), end: seconds(end), text });
  }
  if (!cues.length) throw new SyntaxError("This file has no subtitles in WebVTT or SubRip form.");
  cues.sort((a, b) => a.start - b.start);
  let shown = [];
  return cues
    .map(({ start, end, text }) => {
      const fresh = text.filter((line) => !shown.includes(line));
      shown = text;
      return { start, end, text: fresh.join(" ") };
    })
    .filter((cue) => cue.text);
}
