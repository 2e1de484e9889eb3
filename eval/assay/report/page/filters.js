// Which lines the list shows: status, benchmark, reward, change and text, all of them at once.

const REWARDS = [
  ["", "any", () => true],
  ["full", "1 or more", (value) => isNumber(value) && value >= 1],
  ["part", "between", (value) => isNumber(value) && value > 0 && value < 1],
  ["zero", "0 or less", (value) => isNumber(value) && value <= 0],
  ["none", "no score", (value) => value === null],
];
const CHANGES = [
  ["", "any"],
  ["flip", "flips"],
  ["loss", "losses"],
  ["gain", "gains"],
  ["same", "same"],
  ["alone", "no partner"],
];
const WAIT_MS = 180;

class Filters {
  constructor(lines, changed) {
    Object.assign(this, { lines, changed, statuses: new Set(), text: "", found: null, turn: 0 });
    this.form = byId("filters");
    this.fill();
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("change", () => this.changed());
    this.form.addEventListener("reset", () => this.clear());
    let waiting = 0;
    byId("text").addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => this.search(byId("text").value), WAIT_MS);
    });
  }

  fill() {
    const counts = new Map();
    for (let line = 0; line < this.lines.length; line += 1) {
      for (const status of new Set(this.lines.both("status", line))) {
        if (status !== undefined) counts.set(status, (counts.get(status) ?? 0) + 1);
      }
    }
    byId("statuses").replaceChildren(
      ...STATUS_ORDER.filter((status) => counts.has(status)).map((status) =>
        make(
          "button",
          { type: "button", "aria-pressed": "false", "data-status": status, on: { click: (event) => this.toggle(status, event.currentTarget) } },
          `${status} ${whole(counts.get(status))}`,
        ),
      ),
    );
    const option = ([value, label]) => make("option", { value }, label);
    byId("benchmark").replaceChildren(option(["", "all"]), ...this.lines.benchmarks.map((name, at) => option([String(at), name])));
    byId("reward").replaceChildren(...REWARDS.map(option));
    byId("change").replaceChildren(...CHANGES.map(option));
    byId("change-label").hidden = !this.lines.paired;
    this.form.hidden = false;
  }

  toggle(status, button) {
    const on = !this.statuses.has(status);
    if (on) this.statuses.add(status);
    else this.statuses.delete(status);
    button.setAttribute("aria-pressed", String(on));
    this.changed();
  }

  clear() {
    this.statuses.clear();
    for (const button of byId("statuses").children) button.setAttribute("aria-pressed", "false");
    // The fields have their first values only after this event.
    setTimeout(() => this.search(""));
  }

  // Look for a text: at once in what the list knows, then piece by piece in everything that was said.
  async search(text) {
    const turn = (this.turn += 1);
    this.text = text.trim().toLowerCase();
    this.searched = null;
    if (!this.text) {
      this.found = null;
      this.changed();
      return;
    }
    this.found = new Set();
    for (let line = 0; line < this.lines.length; line += 1) if (this.known(line)) this.found.add(line);
    this.searched = 0;
    this.changed();
    const total = this.lines.sides.reduce((sum, side) => sum + side.rows, 0);
    let seen = 0;
    for (const [at, side] of this.lines.sides.entries()) {
      for (const [piece, rows] of this.rowsByPiece(side)) {
        const items = await side.piece(piece);
        if (turn !== this.turn) return;
        for (const row of rows) if (said(items[side.columns.place[row]]).includes(this.text)) this.found.add(this.lineOf(at, row));
        seen += rows.length;
        this.searched = seen / total;
        this.changed();
      }
    }
    this.searched = null;
    this.changed();
  }

  known(line) {
    return ["key", "family", "error", "excerpt"].some((column) =>
      this.lines.both(column, line).some((value) => value && value.toLowerCase().includes(this.text)),
    );
  }

  rowsByPiece(side) {
    const pieces = new Map();
    side.columns.chunk?.forEach((piece, row) => {
      if (!pieces.has(piece)) pieces.set(piece, []);
      pieces.get(piece).push(row);
    });
    return pieces;
  }

  lineOf(at, row) {
    this.inverse ??= this.lines.sides.map((side, index) => {
      const found = new Int32Array(side.rows);
      this.lines.pairs.forEach((pair, line) => pair[index] >= 0 && (found[pair[index]] = line));
      return found;
    });
    return this.inverse[at][row];
  }

  // The numbers of the lines that pass.
  passing() {
    const wanted = byId("benchmark").value;
    const rewarded = REWARDS.find(([value]) => value === byId("reward").value)[2];
    const change = byId("change").value;
    const shown = [];
    for (let line = 0; line < this.lines.length; line += 1) {
      if (this.found && !this.found.has(line)) continue;
      if (this.statuses.size && !this.lines.both("status", line).some((status) => this.statuses.has(status))) continue;
      if (wanted && this.lines.get("benchmark", line) !== Number(wanted)) continue;
      if (!this.lines.both("reward", line).some((value) => value !== undefined && rewarded(value))) continue;
      if (change && !passes(changeOf(this.lines, line), change)) continue;
      shown.push(line);
    }
    return shown;
  }
}

const passes = (found, wanted) => found === wanted || (wanted === "flip" && (found === "loss" || found === "gain"));

// Everything that was said in a sample, in lower case.
function said({ exchange }) {
  if (!exchange) return "";
  const texts = exchange.messages.flatMap(({ text, thinking, calls }) => [text, thinking, ...calls]);
  return [...texts, exchange.target, exchange.scorer, exchange.error].map(flat).join("\n").toLowerCase();
}
