// Elements and figures. What a run says becomes text and nothing else: no string here is ever read as markup.

const byId = (id) => document.getElementById(id);

// An element with attributes and children; `on` holds listeners, and null, undefined and false children are none.
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "on") for (const [event, action] of Object.entries(value)) element.addEventListener(event, action);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// A text of the data as children of an element: what was cut out of its middle is told between its two ends.
function words(text) {
  if (!Array.isArray(text)) return [String(text)];
  const [head, gone, tail] = text;
  return [head, make("span", { class: "left-out" }, `${gone.toLocaleString("en")} characters left out here`), tail];
}

// The same as one string, for searching.
const flat = (text) => (Array.isArray(text) ? `${text[0]} ${text[2]}` : String(text ?? ""));

const isNumber = (value) => typeof value === "number";
const whole = (value) => (isNumber(value) ? value.toLocaleString("en") : "–");

function reward(value) {
  if (!isNumber(value)) return "–";
  return Number.isInteger(value) ? String(value) : value.toFixed(3);
}

function signed(value) {
  return value > 0 ? `+${reward(value)}` : value < 0 ? `−${reward(-value)}` : "0";
}

function seconds(value) {
  if (!isNumber(value)) return "–";
  if (value === 0) return "0 s";
  if (value < 0.01) return `${(value * 1000).toFixed(1)} ms`;
  if (value < 100) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
  const total = Math.round(value);
  const minutes = Math.floor(total / 60);
  return minutes < 60 ? `${minutes} min ${total % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
