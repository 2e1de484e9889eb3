// Light and dark: the system's choice until the reader makes one. Charts are pixels, so they are drawn again.

const THEMES = ["system", "light", "dark"];

// What a colour of the style sheet comes to now.
function colour(name) {
  const probe = byId("theme");
  probe.style.setProperty("border-left-color", `var(--${name})`);
  const found = getComputedStyle(probe).borderLeftColor;
  probe.style.removeProperty("border-left-color");
  return found;
}

function beginTheme(changed) {
  const button = byId("theme");
  let chosen = 0;
  button.hidden = false;
  button.addEventListener("click", () => {
    chosen = (chosen + 1) % THEMES.length;
    button.textContent = `Theme: ${THEMES[chosen]}`;
    if (chosen) document.documentElement.dataset.theme = THEMES[chosen];
    else delete document.documentElement.dataset.theme;
    changed();
  });
  for (const query of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(query).addEventListener("change", changed);
  }
}
