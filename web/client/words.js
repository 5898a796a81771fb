// When each word of a turn is heard. Exact once the server has told it, which it does while the piece
// is still being made; words beyond those are reckoned from the pace of the turn so far.

import { SAMPLE_RATE } from "./protocol.js";

const WORD = /[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}]|[\p{L}\p{N}](?:[\p{L}\p{M}\p{N}'’.-]*[\p{L}\p{M}\p{N}])?/gu;
const HAN_WEIGHT = 3;
const DIGIT_WEIGHT = 4;
const SAMPLES_PER_LETTER = 0.066 * SAMPLE_RATE;
const ONSET = 0.02 * SAMPLE_RATE; // from the first sound of a piece to its first word
const BETWEEN = 0.6; // what a word takes beside its letters
const TELLING = 3; // letters from which on a pace says something

function weight(word) {
  if (/^[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}]$/u.test(word)) return HAN_WEIGHT;
  return [...word].reduce((sum, letter) => sum + (/\p{N}/u.test(letter) ? DIGIT_WEIGHT : 1), BETWEEN);
}

export class WordTrack {
  constructor() {
    this.words = [];
    this.pieces = new Map();
    this.pace = SAMPLES_PER_LETTER;
    this.onset = ONSET;
  }

  /** Take a `caption` message; offsets in the result are code points of the turn's text. */
  take(caption) {
    if (this.pieces.get(caption.piece)?.final) return;
    this.pieces.set(caption.piece, caption);
    const told = caption.words ?? [];
    this.learn(caption, told);
    const guessed = caption.final ? [] : this.guess(caption, told.at(-1));
    const words = [...told, ...guessed].map((word, i) => ({
      piece: caption.piece,
      start: word.start,
      end: word.end,
      startSample: word.start_sample,
      endSample: word.end_sample,
      exact: i < told.length,
    }));
    const kept = this.words.filter((word) => word.piece !== caption.piece);
    this.words = [...kept, ...words].sort((a, b) => a.startSample - b.startSample);
  }

  // The words of a piece after the last one that was told.
  guess(caption, last) {
    let at = last?.end_sample ?? Math.round(caption.start_sample + this.onset);
    let points = 0;
    let units = 0;
    const words = [];
    for (const { 0: word, index } of caption.text.matchAll(WORD)) {
      points += [...caption.text.slice(units, index)].length;
      const start = caption.start + points;
      const end = start + [...word].length;
      points = end - caption.start;
      units = index + word.length;
      if (start < (last?.end ?? 0)) continue;
      const samples = Math.round(weight(word) * this.pace);
      words.push({ start, end, start_sample: at, end_sample: at + samples });
      at += samples;
    }
    return words;
  }

  learn(caption, words) {
    if (!words.length) return;
    const onset = words[0].start_sample - caption.start_sample;
    const total = words.reduce((sum, { text }) => sum + weight(text), 0);
    const samples = words.at(-1).end_sample - words[0].start_sample;
    if (caption.final && caption.estimated === undefined) this.onset = 0.5 * (this.onset + onset);
    if (total > TELLING && samples > 0) this.pace = 0.5 * (this.pace + samples / total);
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
