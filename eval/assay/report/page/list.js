// The list: rows of one height, of which only those in sight exist, however many there are.

const ROW_PX = 28;
const BEYOND = 8;

class List {
  constructor(lines, opened) {
    Object.assign(this, { lines, opened, shown: [], chosen: -1 });
    this.sort = lines.paired ? { column: CHANGE, down: false } : null;
    this.body = byId("rows");
    byId("browser").hidden = false;
    byId("browser").classList.toggle("wide", lines.paired);
    this.arrange(false);
    this.body.addEventListener("scroll", () => this.later());
    new ResizeObserver(() => this.later()).observe(this.body);
  }

  // Give the list the whole width, or leave half of it to an open sample.
  arrange(open) {
    if (this.open === open) return;
    this.open = open;
    this.columns = columnsOf(this.lines, open);
    this.template = this.columns.map(({ width }) => width).join(" ");
    byId("browser").toggleAttribute("data-open", open);
    byId("columns").style.setProperty("grid-template-columns", this.template);
    this.head();
  }

  head() {
    byId("columns").replaceChildren(
      ...this.columns.map((column) =>
        make(
          "div",
          { role: "columnheader", class: column.class, "aria-sort": this.sort?.column.name === column.name ? (this.sort.down ? "descending" : "ascending") : null },
          make("button", { type: "button", tabindex: "-1", on: { click: () => this.order(column) } }, column.label),
        ),
      ),
    );
    byId("list").setAttribute("aria-colcount", this.columns.length);
  }

  // Sort by a column: up, then down, then in the order of the record again.
  order(column) {
    if (this.sort?.column.name !== column.name) this.sort = { column, down: false };
    else this.sort = this.sort.down ? null : { column, down: true };
    this.head();
    this.show(this.unsorted);
  }

  show(shown) {
    this.unsorted = shown;
    const chosen = this.shown[this.chosen];
    this.shown = this.sorted(shown);
    this.chosen = chosen === undefined ? -1 : this.shown.indexOf(chosen);
    byId("spacer").style.setProperty("height", `${this.shown.length * ROW_PX}px`);
    byId("browser").style.setProperty("--rows", Math.max(3, this.shown.length));
    byId("list").setAttribute("aria-rowcount", this.shown.length);
    if (this.body.scrollTop > this.shown.length * ROW_PX) this.body.scrollTop = 0;
    this.draw();
  }

  sorted(shown) {
    if (!this.sort) return shown;
    const { column, down } = this.sort;
    const keyed = shown.map((line, at) => [column.sort(this.lines, line), at, line]);
    const order = (a, b) => (typeof a === "string" ? compareTexts(a, b) : a - b);
    keyed.sort(([a, i], [b, j]) => (a === b ? i - j : down ? order(b, a) : order(a, b)));
    return keyed.map(([, , line]) => line);
  }

  later() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.draw());
  }

  draw() {
    const first = Math.max(0, Math.floor(this.body.scrollTop / ROW_PX) - BEYOND);
    const last = Math.min(this.shown.length, Math.ceil((this.body.scrollTop + this.body.clientHeight) / ROW_PX) + BEYOND);
    const rows = [byId("spacer")];
    for (let at = first; at < last; at += 1) rows.push(this.row(at));
    if (!this.shown.length) rows.push(make("p", { class: "nothing" }, "No sample passes the filter."));
    this.body.replaceChildren(...rows);
    const active = this.chosen >= first && this.chosen < last ? `row-${this.shown[this.chosen]}` : null;
    if (active) byId("list").setAttribute("aria-activedescendant", active);
    else byId("list").removeAttribute("aria-activedescendant");
  }

  row(at) {
    const line = this.shown[at];
    const row = make("div", { role: "row", id: `row-${line}`, "aria-rowindex": at + 1, "aria-selected": String(at === this.chosen), on: { click: () => this.choose(at) } });
    row.style.setProperty("top", `${at * ROW_PX}px`);
    row.style.setProperty("grid-template-columns", this.template);
    for (const column of this.columns) {
      const cell = make("div", { role: "gridcell", class: column.class });
      column.draw(cell, this.lines, line);
      row.append(cell);
    }
    return row;
  }

  // Choose a row, bring it into sight and open it.
  choose(at) {
    if (at < 0 || at >= this.shown.length) return;
    this.chosen = at;
    this.arrange(true);
    const top = at * ROW_PX;
    if (top < this.body.scrollTop) this.body.scrollTop = top;
    const below = top + ROW_PX - this.body.clientHeight;
    if (below > this.body.scrollTop) this.body.scrollTop = below;
    this.draw();
    this.opened(this.shown[at]);
  }

  step(by) {
    this.choose(this.chosen < 0 ? 0 : Math.max(0, Math.min(this.shown.length - 1, this.chosen + by)));
  }

  // Choose a line wherever it is; one that the filter hides is opened alone.
  find(line) {
    const at = this.shown.indexOf(line);
    if (at >= 0) {
      this.choose(at);
      return;
    }
    this.arrange(true);
    this.draw();
    this.opened(line);
  }

  leave() {
    this.chosen = -1;
    this.arrange(false);
    this.draw();
  }
}

const compareTexts = new Intl.Collator("en", { numeric: true }).compare;
