// The colours of the style sheet for what is drawn by hand, with the patterns that tell states apart without them.

const NAMES = ["ground", "panel", "ink", "muted", "line", "edge", "wash", "accent", "second", "busy", "blocked", "starved", "overhead",
  "busy-mark", "blocked-mark", "starved-mark", "overhead-mark"];

let colours = null;
const listeners = new Set();

/** The colours as the system's setting has them now, by name. */
export function palette() {
  if (!colours) {
    const css = getComputedStyle(document.documentElement);
    colours = Object.fromEntries(NAMES.map((name) => [name, css.getPropertyValue(`--${name}`).trim()]));
    colours.font = css.getPropertyValue("font-family");
  }
  return colours;
}

/** Call `fn` when light turns to dark or back; returns what ends that. */
export function onTheme(fn) {
  listeners.add(fn);
  return () => listeners.delete(fn);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  colours = null;
  for (const fn of listeners) fn();
});

/** Fill styles by state for `context`: busy plain, blocked hatched, starved dotted, overhead striped. */
export function patterns(context) {
  const p = palette();
  const tile = (name, size, draw) => {
    const scale = Math.max(1, Math.round(devicePixelRatio));
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = size * scale;
    const c = canvas.getContext("2d");
    c.scale(scale, scale);
    c.fillStyle = p[name];
    c.fillRect(0, 0, size, size);
    c.strokeStyle = c.fillStyle = p[`${name}-mark`];
    c.lineWidth = 1.2;
    draw(c);
    const pattern = context.createPattern(canvas, "repeat");
    pattern.setTransform(new DOMMatrix().scale(1 / scale));
    return pattern;
  };
  return {
    busy: p.busy,
    blocked: tile("blocked", 6, (c) => { for (const x of [-6, 0, 6]) { c.beginPath(); c.moveTo(x - 1, 7); c.lineTo(x + 7, -1); c.stroke(); } }),
    starved: tile("starved", 5, (c) => { c.beginPath(); c.arc(2.5, 2.5, 0.8, 0, 7); c.fill(); }),
    overhead: tile("overhead", 5, (c) => { c.fillRect(0, 0, 1.2, 5); }),
  };
}
