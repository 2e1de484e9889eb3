// One sample: what was asked, thought and said, how it was judged, and where its time went.

class Pane {
  constructor(lines, close) {
    Object.assign(this, { lines, close, turn: 0, unfolded: false });
    this.place = byId("sample");
    this.clear();
  }

  clear() {
    this.turn += 1;
    this.place.replaceChildren();
  }

  // Show a line; of two quick choices only the last one is drawn.
  async show(line) {
    const turn = (this.turn += 1);
    const rows = this.lines.pairs[line];
    const items = await Promise.all(rows.map((row, at) => (row < 0 ? null : this.lines.sides[at].item(row))));
    if (turn !== this.turn) return;
    const shared = sharedMessages(items);
    const halves = rows.map((row, at) => this.half(at, row, items[at], shared));
    const asked = shared ? items[0].exchange.messages.slice(0, shared).map((message) => this.message(message)) : [];
    this.place.replaceChildren(
      this.title(line),
      ...(asked.length ? [make("h4", {}, "The same in both"), ...folded(asked)] : []),
      make("div", { class: "halves" }, ...halves),
    );
    this.place.toggleAttribute("data-shared", shared > 0);
    this.place.scrollTop = 0;
  }

  title(line) {
    const rollout = this.lines.get("rollout", line);
    return make(
      "header",
      {},
      make("div", {}, make("h3", {}, this.lines.get("key", line)), make("p", {}, `${this.lines.get("family", line)}${rollout ? `, rollout ${rollout}` : ""}`)),
      make("button", { type: "button", on: { click: () => this.close() } }, "Close"),
    );
  }

  half(at, row, item, shared) {
    const side = this.lines.sides[at];
    const half = make("div", { class: "half", "data-side": side.letter });
    if (this.lines.paired) half.append(make("b", { class: "tag", "data-side": side.letter }, side.letter.toUpperCase()));
    if (!item) {
      half.append(make("p", { class: "empty" }, "This run has no such sample."));
      return half;
    }
    half.append(this.figures(side, row, item.row));
    const { exchange } = item;
    if (exchange) {
      if (exchange.error) half.append(make("h4", {}, "Error"), make("pre", { class: "error" }, ...words(exchange.error)));
      half.append(...this.judged(exchange));
      half.append(make("h4", {}, shared ? "Answered" : "Messages"), ...exchange.messages.slice(shared).map((message) => this.message(message)));
      if (exchange.scorer) half.append(make("h4", {}, "The scorer's output"), make("pre", { class: "code" }, ...words(exchange.scorer)));
      half.append(...timings(exchange.spans));
    } else {
      const error = side.get("error", row);
      if (error) half.append(make("h4", {}, "Error"), make("pre", { class: "error" }, error));
      half.append(make("p", { class: "empty" }, "The run has no record of what was said."));
    }
    half.append(...digests(side, row, item.row));
    return half;
  }

  figures(side, row, rest) {
    const status = side.get("status", row);
    const facts = [
      ["Reward", reward(side.get("reward", row)), "reward"],
      ["Status", make("b", { class: "status", "data-status": status }, status)],
      ["Tokens", `${whole(side.get("prompt_tokens", row))} in, ${whole(side.get("tokens", row))} out`],
      ["Time", seconds(side.get("seconds", row))],
      ["Ended by", [side.get("finish", row), rest.stop_condition].filter(Boolean).join(", ") || "–"],
    ];
    if (rest.turns > 1) facts.push(["Turns", rest.turns]);
    if (rest.attempts > 1) facts.push(["Model calls", rest.attempts]);
    if (rest.empty) facts.push(["Answer", "empty"]);
    if (rest.unparsed) facts.push(["Scorer", "found no answer"]);
    return make("dl", { class: "figures" }, ...facts.map(([name, value, kind]) => make("div", { class: kind }, make("dt", {}, name), make("dd", {}, value))));
  }

  judged({ parts, target }) {
    const found = [];
    if (parts.length) {
      const cells = ({ name, score, weight }) => make("tr", {}, make("th", { scope: "row" }, ...words(name)), make("td", { class: "n" }, reward(score)), make("td", { class: "n" }, weight === null ? "" : `× ${reward(weight)}`));
      found.push(make("h4", {}, "Reward parts"), make("table", { class: "parts" }, make("tbody", {}, ...parts.map(cells))));
    }
    if (target !== null) found.push(make("h4", {}, "Wanted"), make("pre", { class: "code" }, ...words(target)));
    return found;
  }

  message({ role, text, thinking, calls }) {
    const found = make("div", { class: "message", "data-role": role }, make("p", { class: "role" }, ...words(role)));
    if (thinking !== null) {
      const length = Array.isArray(thinking) ? thinking[0].length + thinking[1] + thinking[2].length : thinking.length;
      const folded = make("details", { class: "thinking" }, make("summary", {}, `Thinking, ${whole(length)} characters`), make("pre", {}, ...words(thinking)));
      folded.open = this.unfolded;
      found.append(folded);
    }
    if (flat(text)) found.append(make("pre", {}, ...words(text)));
    for (const call of calls) found.append(make("pre", { class: "code" }, ...words(call)));
    if (!flat(text) && !calls.length) found.append(make("p", { class: "empty" }, "No visible text."));
    return found;
  }

  // Fold or unfold the thinking, here and in what is opened next.
  fold() {
    this.unfolded = !this.unfolded;
    for (const folded of this.place.querySelectorAll("details.thinking")) folded.open = this.unfolded;
  }
}

// Messages of which only the last is shown at once: what two samples share shall not hide where they part.
function folded(messages) {
  if (messages.length < 2) return messages;
  const before = messages.slice(0, -1);
  return [make("details", {}, make("summary", {}, `${before.length} message${before.length > 1 ? "s" : ""} before it`), ...before), messages.at(-1)];
}

// How many first messages two samples share; the last answer of each always stands apart.
function sharedMessages(items) {
  if (items.length < 2 || items.some((item) => !item?.exchange)) return 0;
  const [ours, theirs] = items.map(({ exchange }) => exchange.messages);
  let shared = 0;
  const end = Math.min(...[ours, theirs].map((messages) => messages.map(({ role }) => role).lastIndexOf("assistant")));
  while (shared < (end < 0 ? Math.min(ours.length, theirs.length) : end) && JSON.stringify(ours[shared]) === JSON.stringify(theirs[shared])) shared += 1;
  return shared;
}

function timings(spans) {
  const told = Object.entries(spans).filter(([, value]) => isNumber(value) && value >= 0);
  if (!told.length) return [];
  const total = told.reduce((sum, [, value]) => sum + value, 0) || 1;
  const bars = told.map(([, value]) => {
    const bar = make("i");
    bar.style.setProperty("width", `${(100 * value) / total}%`);
    return bar;
  });
  return [
    make("h4", {}, "Time"),
    make("div", { class: "spans", "aria-hidden": "true" }, ...bars),
    make("p", { class: "span-names" }, ...told.map(([name, value]) => make("span", {}, `${name} ${seconds(value)}`))),
  ];
}

function digests(side, row, rest) {
  const record = side.get("record", row);
  const line = side.get("line", row);
  const told = [
    ["Record", record && (line ? `${record}:${line}` : record)],
    ["Seed", rest.seed],
    ["Question", rest.cluster],
    ["Prompt", rest.prompt_digest],
    ["Answer", rest.answer_digest],
    ["Output", rest.output_digest],
  ].filter(([, value]) => value !== null && value !== undefined);
  return [make("h4", {}, "Where it stands, by SHA-256"), make("dl", { class: "digests" }, ...told.flatMap(([name, value]) => [make("dt", {}, name), make("dd", { title: String(value) }, String(value))]))];
}
