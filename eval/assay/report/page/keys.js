// The keyboard. A key that someone is typing with, or that the browser wants, is left alone.

function beginKeys({ list, pane, close }) {
  const help = byId("help");
  const button = byId("keys");
  button.hidden = false;
  button.addEventListener("click", () => help.showModal());
  const move = (by) => {
    byId("browser").scrollIntoView({ block: "nearest" });
    list.step(by);
  };
  const read = () => {
    if (list.chosen < 0) list.step(1);
    pane.place.focus();
  };
  const actions = { j: () => move(1), k: () => move(-1), t: () => pane.fold(), "?": () => help.showModal() };
  const inList = { ArrowDown: () => move(1), ArrowUp: () => move(-1), Home: () => list.choose(0), End: () => list.choose(list.shown.length - 1), Enter: read };
  document.addEventListener("keydown", (event) => {
    const { key, target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    if (key === "Escape") {
      if (target === byId("text")) byId("list").focus();
      else if (pane.place.contains(target) && list.chosen >= 0) byId("list").focus();
      else close();
      return;
    }
    if (target.matches("input, select, textarea")) return;
    const free = !target.closest("button, a, summary");
    const action = actions[key] ?? (free && key === "Enter" ? read : null) ?? (target === byId("list") ? inList[key] : null);
    if (key === "/") {
      byId("filters").scrollIntoView({ block: "nearest" });
      byId("text").focus();
      byId("text").select();
    } else if (action) action();
    else return;
    event.preventDefault();
  });
}
