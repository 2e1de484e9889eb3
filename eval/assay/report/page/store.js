// The data: compressed pieces in elements that are no scripts, unpacked when they are wanted.

const KEPT_PIECES = 24;

async function unpack(id) {
  const letters = atob(byId(id).textContent);
  const bytes = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at += 1) bytes[at] = letters.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

// One run's rows, by column, and the pieces that hold what was said in them.
class Side {
  constructor(letter, { rows, names, columns }) {
    Object.assign(this, { letter, rows, names, columns });
    this.pieces = new Map();
  }

  // A value of a row; where the column holds numbers of names, the name.
  get(column, row) {
    const value = this.columns[column]?.[row];
    const names = this.names[column];
    return names ? (value < 0 ? null : names[value]) : value;
  }

  // All of one piece; the pieces that were used last stay.
  piece(number) {
    const found = this.pieces.get(number) ?? unpack(`${this.letter}-${number}`);
    this.pieces.delete(number);
    this.pieces.set(number, found);
    if (this.pieces.size > KEPT_PIECES) this.pieces.delete(this.pieces.keys().next().value);
    return found;
  }

  // The rest of a row: `{row, exchange}`.
  async item(row) {
    return (await this.piece(this.columns.chunk[row]))[this.columns.place[row]];
  }
}

// Every line of the list: a row of A, or one of A and its partner of B. -1 is no row.
class Lines {
  constructor({ benchmarks, sides, pairs }) {
    this.benchmarks = benchmarks;
    this.sides = sides.map((side, at) => new Side("ab"[at], side));
    this.paired = pairs !== null;
    this.pairs = pairs ?? Array.from({ length: sides[0].rows }, (_, row) => [row]);
    this.length = this.pairs.length;
  }

  // A column's value of a line: A's, or B's where A has no such row.
  get(column, line) {
    const at = this.pairs[line].findIndex((row) => row >= 0);
    return this.sides[at].get(column, this.pairs[line][at]);
  }

  // The values of both sides; undefined where a side has no row.
  both(column, line) {
    return this.pairs[line].map((row, at) => (row < 0 ? undefined : this.sides[at].get(column, row)));
  }

  // B's reward minus A's, a row without a score counted 0; null where a side has no row at all.
  change(line) {
    const [a, b] = this.pairs[line];
    if (!this.paired || a < 0 || b < 0) return null;
    return (this.sides[1].columns.reward[b] ?? 0) - (this.sides[0].columns.reward[a] ?? 0);
  }

  // The line that holds a side's row.
  lineOf(at, row) {
    return this.paired ? this.pairs.findIndex((pair) => pair[at] === row) : row;
  }
}
