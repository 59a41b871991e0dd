// Elements from data. Whatever comes from a run is set as text, never parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(el, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) el.addEventListener(event, listener);
    else if (name === "data") Object.assign(el.dataset, value);
    else if (name === "value") el.value = value;
    else el.setAttribute(name, value === true ? "" : String(value));
  }
  el.append(...children.flat(3).filter((c) => c !== null && c !== undefined && c !== false));
  return el;
}

/** An HTML element: `h("p", {class: "quiet"}, "text", child)`. Strings become text nodes. */
export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);

/** The same for SVG. */
export const s = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

/** Set an element's text only where it differs, so that what has not changed is not announced or laid out again. */
export function say(el, text) {
  if (el.textContent !== text) el.textContent = text;
}

export function show(el, on) {
  if (el.hidden === Boolean(on)) el.hidden = !on;
}

/** A custom property or a width, through the object model: a style attribute would be refused by the content policy. */
export function style(el, name, value) {
  if (el.style.getPropertyValue(name) !== value) el.style.setProperty(name, value);
}

export const width = (el, share) => style(el, "width", `${(Math.max(0, Math.min(1, share || 0)) * 100).toFixed(2)}%`);

/** A legend of the four states. */
export const legend = (states = STATES) =>
  h("ul", { class: "legend", "aria-label": "States" }, states.map(([name, text]) =>
    h("li", {}, h("span", { class: `state state-${name}`, "aria-hidden": "true" }), text)));

export const STATES = [
  ["busy", "busy"], ["blocked", "blocked (no room behind it)"], ["starved", "starved (nothing to do)"], ["overhead", "overhead"],
];

/** Ask in a dialog; resolves true where the answer was the named one. */
export function confirm(title, text, yes) {
  return new Promise((resolve) => {
    const close = (answer) => { dialog.close(); dialog.remove(); resolve(answer); };
    const ok = h("button", { type: "button", class: "main", on: { click: () => close(true) } }, yes);
    const dialog = h("dialog", { "aria-labelledby": "ask-title", on: { cancel: (e) => { e.preventDefault(); close(false); } } },
      h("div", { class: "ask" }, h("h2", { id: "ask-title" }, title), h("p", { class: "quiet" }, text),
        h("div", { class: "row" }, ok, h("button", { type: "button", on: { click: () => close(false) } }, "Not now"))));
    document.body.append(dialog);
    dialog.showModal();
    ok.focus();
  });
}

/** `fn` after `ms` without another call. */
export function settled(fn, ms) {
  let timer = 0;
  return (...args) => { clearTimeout(timer); timer = setTimeout(() => fn(...args), ms); };
}
