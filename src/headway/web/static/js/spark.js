// How much waits over the whole run: queues as lines, with the moment that is played.

import { h, s } from "./dom.js";
import { count } from "./format.js";

const WIDE = 600;
const HIGH = 90;

/** Points of what waits in the queues of `stages` and at the gate: `[[t, queued, held]]`. */
export function waiting({ queues, gate }, stages) {
  const depths = new Map();
  let held = 0;
  const all = [...queues.filter(([, stage]) => stages.includes(stage)).map(([t, stage, depth]) => [t, stage, depth]), ...gate.map(([t, n]) => [t, null, n])].sort((a, b) => a[0] - b[0]);
  const points = [[0, 0, 0]];
  for (const [t, stage, n] of all) {
    if (stage === null) held = n; else depths.set(stage, n);
    const queued = [...depths.values()].reduce((sum, depth) => sum + depth, 0);
    if (points.at(-1)[0] === t) points[points.length - 1] = [t, queued, held];
    else points.push([t, queued, held]);
  }
  return points;
}

export class Spark {
  /** `end`: seconds of the axis, `most`: rows of the axis; both shared by what is compared. */
  constructor(points, end, most, stop = Infinity) {
    const x = (t) => ((t / end) * WIDE).toFixed(1);
    const y = (n) => (HIGH - 2 - (n / Math.max(1, most)) * (HIGH - 6)).toFixed(1);
    const line = (column) => {
      const path = [`M0 ${y(0)}`];
      for (const point of points) path.push(`H${x(point[0])}V${y(point[column])}`);
      path.push(`H${x(Math.min(end, stop))}`);
      return path.join("");
    };
    const top = Math.max(...points.map((point) => point[1]));
    const held = Math.max(...points.map((point) => point[2]));
    this.end = end;
    this.mark = s("line", { x1: 0, x2: 0, y1: 0, y2: HIGH, class: "mark" });
    this.element = h("figure", { class: "spark" },
      h("figcaption", { class: "small" }, h("b", {}, "Waiting over time"), h("span", {}, h("i", { class: "key queued", "aria-hidden": "true" }), `queued, at most ${count(top)}`),
        h("span", {}, h("i", { class: "key held", "aria-hidden": "true" }), `held for order, at most ${count(held)}`)),
      s("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", "aria-hidden": "true" },
        s("line", { x1: 0, x2: WIDE, y1: HIGH - 2, y2: HIGH - 2, class: "ground" }),
        s("path", { d: line(1), class: "queued" }), s("path", { d: line(2), class: "held" }), this.mark));
  }

  update(t) {
    const at = ((t / this.end) * WIDE).toFixed(1);
    this.mark.setAttribute("x1", at);
    this.mark.setAttribute("x2", at);
  }
}
