// When each word of a turn is heard. Exact once the server has told the words of a piece; until
// then, while the piece is still being made, reckoned from the pace of the turn so far.

import { SAMPLE_RATE } from "./protocol.js";

const WORD = /[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}]|[\p{L}\p{N}][\p{L}\p{M}\p{N}'’.-]*/gu;
const HAN_WEIGHT = 3;
const DIGIT_WEIGHT = 4;
const SAMPLES_PER_LETTER = 0.066 * SAMPLE_RATE;

function weight(word) {
  if (/^[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}]$/u.test(word)) return HAN_WEIGHT;
  return [...word].reduce((sum, letter) => sum + (/\p{N}/u.test(letter) ? DIGIT_WEIGHT : 1), 1);
}

export class WordTrack {
  constructor() {
    this.words = [];
    this.pieces = new Map();
    this.pace = SAMPLES_PER_LETTER;
  }

  /** Take a `caption` message; offsets in the result are code points of the turn's text. */
  take(caption) {
    const known = this.pieces.get(caption.piece);
    if (known?.final) return;
    const words = caption.words ?? (caption.final ? [] : this.guess(caption));
    this.pieces.set(caption.piece, caption);
    if (caption.final && caption.words?.length) this.learn(caption);
    const kept = this.words.filter((word) => word.piece !== caption.piece);
    const told = words.map((word) => ({
      piece: caption.piece,
      start: word.start,
      end: word.end,
      startSample: word.start_sample,
      endSample: word.end_sample,
      exact: caption.final,
    }));
    this.words = [...kept, ...told].sort((a, b) => a.startSample - b.startSample);
  }

  guess(caption) {
    let at = caption.start_sample;
    let points = 0;
    let units = 0;
    const words = [];
    for (const { 0: word, index } of caption.text.matchAll(WORD)) {
      points += [...caption.text.slice(units, index)].length;
      const length = [...word].length;
      const samples = Math.round(weight(word) * this.pace);
      const start = caption.start + points;
      words.push({ start, end: start + length, start_sample: at, end_sample: at + samples });
      at += samples;
      points += length;
      units = index + word.length;
    }
    return words;
  }

  learn(caption) {
    const total = [...caption.text.matchAll(WORD)].reduce((sum, [word]) => sum + weight(word), 0);
    const samples = caption.end_sample - caption.start_sample;
    if (total > 3 && samples > 0) this.pace = 0.5 * this.pace + 0.5 * (samples / total);
  }

  /** The index of the word that sounds at a sample, or of the one before; -1 before the first. */
  at(sample) {
    let low = 0;
    let high = this.words.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.words[middle].startSample <= sample) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }
}
