// The wire counts Unicode code points, JavaScript strings UTF-16 units.

const ASTRAL = /[\u{10000}-\u{10ffff}]/gu;

/** A text that grows, with offsets translated both ways. */
export class CodePointText {
  constructor() {
    this.text = "";
    this.wide = []; // code point offsets of characters that take two units
  }

  append(more) {
    for (const found of more.matchAll(ASTRAL)) {
      this.wide.push(this.text.length + found.index - this.wide.length);
    }
    this.text += more;
  }

  /** The UTF-16 offset of a code point offset. */
  unit(point) {
    let low = 0;
    let high = this.wide.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.wide[middle] < point) low = middle + 1;
      else high = middle;
    }
    return point + low;
  }

  get points() {
    return this.text.length - this.wide.length;
  }

  slice(start, end) {
    return this.text.slice(this.unit(start), this.unit(end));
  }
}
