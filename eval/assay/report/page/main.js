// The page comes alive: the index is unpacked, and the list, the charts and the keys begin.

async function begin() {
  if (!("DecompressionStream" in window)) {
    byId("shown").textContent = "this browser cannot unpack them; one of 2023 or later can";
    return;
  }
  const lines = new Lines(await unpack("index"));
  const pane = new Pane(lines, () => close());
  const list = new List(lines, (line) => pane.show(line));
  const histograms = new Histograms(lines);
  const timeline = new Timeline(lines, (at, row) => {
    byId("browser").scrollIntoView({ block: "nearest" });
    list.find(lines.lineOf(at, row));
  });
  const close = () => {
    list.leave();
    pane.clear();
    byId("list").focus();
  };
  const filters = new Filters(lines, () => refresh());
  let frame = 0;
  const refresh = () => {
    const shown = filters.passing();
    const searching = filters.searched === null || filters.searched === undefined ? "" : `, searching ${Math.floor(100 * filters.searched)} %`;
    byId("shown").textContent = `${whole(shown.length)} of ${whole(lines.length)}${searching}`;
    byId("shown").dataset.text = filters.text;
    list.show(shown);
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => histograms.draw(shown));
  };
  beginTheme(() => {
    histograms.draw(list.shown);
    timeline.draw();
  });
  beginKeys({ list, pane, close });
  refresh();
  timeline.draw();
  document.documentElement.dataset.ready = "";
}

begin();
