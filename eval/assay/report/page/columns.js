// The columns of the list: what each is called, how it is drawn, and what it is sorted by.

const STATUS_ORDER = ["errored", "missing", "truncated", "scored"];

// Two of them fit in a column; the whole words are in its title.
const SHORT = { scored: "ok", truncated: "cut", errored: "error", missing: "missing" };

const each = (lines, name, line, draw) => {
  const values = lines.both(name, line).map((value) => draw(value));
  return values.every((value) => value === values[0]) ? values[0] : values.join(" → ");
};

function statusOf(lines, line) {
  return lines.both("status", line).reduce((worst, status) => {
    if (status === undefined) return worst;
    return worst && STATUS_ORDER.indexOf(worst) <= STATUS_ORDER.indexOf(status) ? worst : status;
  }, undefined);
}

function changeOf(lines, line) {
  const change = lines.change(line);
  if (change === null) return "alone";
  return change < 0 ? "loss" : change > 0 ? "gain" : "same";
}

// Losses first, the largest before the others, then gains, then what stayed, then what has no partner.
function changeOrder(change) {
  if (change === null) return Infinity;
  if (change === 0) return Number.MAX_VALUE;
  return change < 0 ? change - 1e9 : -change;
}

const STATUS = {
  name: "status",
  label: "Status",
  width: "84px",
  class: "status",
  sort: (lines, line) => STATUS_ORDER.indexOf(statusOf(lines, line)),
  draw: (cell, lines, line) => {
    cell.dataset.status = statusOf(lines, line);
    cell.textContent = each(lines, "status", line, (status) => (lines.paired ? SHORT[status] : status) ?? "–");
    cell.title = lines.both("status", line).join(" → ");
  },
};
const REWARD = {
  name: "reward",
  label: "Reward",
  width: "78px",
  class: "n",
  sort: (lines, line) => lines.get("reward", line) ?? -Infinity,
  draw: (cell, lines, line) => (cell.textContent = each(lines, "reward", line, reward)),
};
const CHANGE = {
  name: "change",
  label: "Change",
  width: "80px",
  class: "n change",
  sort: (lines, line) => changeOrder(lines.change(line)),
  draw: (cell, lines, line) => {
    cell.dataset.change = changeOf(lines, line);
    cell.textContent = lines.change(line) === null ? "alone" : signed(lines.change(line));
  },
};
const TASK = {
  name: "task",
  label: "Task",
  width: "minmax(110px, 1.1fr)",
  class: "key",
  sort: (lines, line) => lines.get("key", line),
  draw: (cell, lines, line) => {
    const rollout = lines.get("rollout", line);
    cell.textContent = rollout ? `${lines.get("key", line)} #${rollout}` : lines.get("key", line);
    cell.title = cell.textContent;
  },
};
const FAMILY = {
  name: "family",
  label: "Family",
  width: "minmax(80px, 0.7fr)",
  class: "key",
  sort: (lines, line) => lines.get("family", line),
  draw: (cell, lines, line) => (cell.textContent = lines.get("family", line)),
};
const TOKENS = {
  name: "tokens",
  label: "Tokens",
  width: "76px",
  class: "n",
  sort: (lines, line) => lines.get("tokens", line) ?? -1,
  draw: (cell, lines, line) => (cell.textContent = each(lines, "tokens", line, whole)),
};
const SECONDS = {
  name: "seconds",
  label: "Time",
  width: "78px",
  class: "n",
  sort: (lines, line) => lines.get("seconds", line) ?? -1,
  draw: (cell, lines, line) => (cell.textContent = each(lines, "seconds", line, seconds)),
};
// What one of two runs said.
const saidBy = (letter, at) => ({
  name: `said-${letter}`,
  label: `Answer of ${letter}, or error`,
  width: "minmax(90px, 1.3fr)",
  class: "excerpt",
  sort: (lines, line) => lines.both("excerpt", line)[at] ?? "",
  draw: (cell, lines, line) => (cell.textContent = lines.both("error", line)[at] ?? lines.both("excerpt", line)[at] ?? ""),
});
const SAID = {
  name: "said",
  label: "Answer, or error",
  width: "minmax(90px, 1.6fr)",
  class: "excerpt",
  sort: (lines, line) => lines.get("error", line) ?? lines.get("excerpt", line),
  draw: (cell, lines, line) => {
    cell.textContent = lines.both("error", line).find(Boolean) ?? lines.both("excerpt", line).find(Boolean) ?? "";
  },
};

// Everything in a line, or, beside an open sample, what fits. Of two runs what changed comes first.
function columnsOf(lines, open) {
  if (!lines.paired) return open ? [STATUS, REWARD, TASK, TOKENS, SAID] : [STATUS, REWARD, TASK, FAMILY, TOKENS, SECONDS, SAID];
  const both = [CHANGE, { ...REWARD, width: "88px", label: "A → B" }, TASK];
  const status = { ...STATUS, width: "92px" };
  const tokens = { ...TOKENS, width: "100px" };
  if (open) return [...both, status, tokens];
  return [...both, FAMILY, { ...status, width: "110px" }, tokens, { ...SECONDS, width: "120px" }, ...["A", "B"].map(saidBy)];
}
