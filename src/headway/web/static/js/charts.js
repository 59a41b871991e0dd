// Charts by plotly: rate against the ceiling, latency, depth and age, held items, memory. Fill, steady and drain marked.

import { h, say, show, style } from "./dom.js";
import { bytes, count, rate, seconds } from "./format.js";
import { onTheme, palette } from "./palette.js";

const EVERY_MS = 1000;
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
let library = null;

/** plotly, once it is needed; the page asks its own server and nobody else. */
function plotly() {
  library ??= new Promise((resolve, reject) => {
    const loaded = () => { delete document.createElement; resolve(window.Plotly); };
    const missing = () => { delete document.createElement; reject(new Error("The curves cannot be drawn: /plotly.min.js did not load.")); };
    const script = h("script", { src: "/plotly.min.js", on: { load: loaded, error: missing } });
    // Its map parts write a style sheet into the page as they load, which the content policy refuses, aloud: let it write into nothing.
    document.createElement = (name, ...more) => Document.prototype.createElement.call(document, name === "style" ? "template" : name, ...more);
    document.head.append(script);
  });
  return library;
}

const last = (points) => points.at(-1);
const latency = (name) => (point) => point.latency[name] ?? null;

const CHARTS = [
  { key: "rate", title: "Rate", format: (x) => rate(x, ""), unit: "rows/s", now: (p) => `${rate(p.rate)}, ceiling ${rate(p.ceiling, "")}`,
    lines: () => [["rate", (p) => p.rate], ["ceiling", (p) => p.ceiling]] },
  { key: "latency", title: "Latency", unit: "s", now: (p) => `p50 ${seconds(p.latency.p50)}, p99 ${seconds(p.latency.p99)}`,
    lines: () => [["p50", latency("p50")], ["p90", latency("p90")], ["p99", latency("p99")]] },
  { key: "depth", title: "Queue depth", unit: "rows", now: (p) => deepest(p, "depth", count),
    lines: (p) => Object.keys(p.queues).map((name) => [name, (q) => q.queues[name]?.depth ?? null]) },
  { key: "age", title: "Queue age", unit: "s", most: true, now: (p) => deepest(p, "age", seconds),
    lines: (p) => Object.keys(p.queues).map((name) => [name, (q) => q.queues[name]?.age ?? null]) },
  { key: "held", title: "Held for order", unit: "rows", most: true, now: (p) => count(p.held), lines: () => [["held", (p) => p.held]] },
  { key: "memory", title: "Memory", unit: "MiB", now: (p) => bytes(p.memory), lines: () => [["memory", (p) => (p.memory === null ? null : p.memory / 2 ** 20)]] },
];

function deepest(point, key, format) {
  const most = Object.entries(point.queues).sort((a, b) => b[1][key] - a[1][key])[0];
  return most ? `most in front of ${most[0]}: ${format(most[1][key])}` : "–";
}

const MOST_POINTS = 120;

/** The history in parts of equal time that stay where they are: a curve with a point for every pixel is noise. */
function shared(history) {
  const seen = last(history).t - history[0].t;
  const wide = [0.25, 0.5, 1, 2].find((each) => seen / each <= MOST_POINTS) ?? seen / MOST_POINTS;
  const parts = new Map();
  for (const point of history) {
    const at = Math.floor(point.t / wide);
    if (!parts.has(at)) parts.set(at, []);
    parts.get(at).push(point);
  }
  return [...parts.values()];
}

/** One value for a part: its mean, or its highest where that is what matters. */
function told(values, most) {
  const there = values.filter((value) => value !== null);
  if (!there.length) return null;
  return most ? Math.max(...there) : there.reduce((sum, value) => sum + value, 0) / there.length;
}

export class Charts {
  constructor(model) {
    this.model = model;
    this.grid = h("div", { class: "charts" });
    this.figures = new Map(CHARTS.map((chart) => {
      const plot = h("div", { class: "plot" });
      const now = h("span", { class: "num" }, "–");
      const figure = h("figure", { class: "chart", data: { chart: chart.key } }, h("figcaption", {}, h("b", {}, chart.title), now), plot);
      this.grid.append(figure);
      return [chart.key, { plot, now }];
    }));
    this.totals = h("div", { hidden: true });
    this.wrong = h("p", { class: "wrong", hidden: true });
    this.element = h("section", { class: "panel", "aria-labelledby": "charts-title" },
      h("header", {}, h("h2", { id: "charts-title" }, "Over time")), this.wrong, this.grid, this.totals);
    this.drawn = 0;
    this.seen = false;
    this.observer = new IntersectionObserver(([entry]) => { this.seen = entry.isIntersecting; if (this.seen) this.update(true); }, { rootMargin: "120px" });
    this.observer.observe(this.element);
    this.unlisten = onTheme(() => this.update(true));
    if (model.run.live) requestIdleCallback(() => plotly().catch(() => {})); // the page's server ends with the run
  }

  close() {
    this.observer.disconnect();
    this.unlisten();
    for (const { plot } of this.figures.values()) window.Plotly?.purge(plot);
  }

  update(now = false) {
    const { history, snapshot } = this.model;
    const timed = history.length > 1;
    show(this.grid, timed || !this.model.ended);
    show(this.totals, !timed && this.model.ended);
    if (!timed) {
      if (this.model.ended && snapshot && !this.totals.firstChild) this.totals.append(...totals(snapshot));
      return;
    }
    for (const chart of CHARTS) say(this.figures.get(chart.key).now, chart.now(last(history)));
    if (!this.seen || (!now && !this.model.ended && performance.now() - this.drawn < EVERY_MS)) return;
    this.drawn = performance.now();
    plotly().then((Plotly) => this.#draw(Plotly), (error) => { show(this.wrong, true); say(this.wrong, error.message); });
  }

  #draw(Plotly) {
    const { history } = this.model;
    const p = palette();
    const parts = shared(history);
    const x = parts.map((part) => part.at(-1).t);
    const inks = [p.busy, p.muted, p.second, p.edge, p.ink, p.overhead];
    for (const chart of CHARTS) {
      const lines = chart.lines(last(history)).map(([name, value], i) => ({
        x, y: parts.map((part) => told(part.map(value), chart.most)), name, mode: "lines", hovertemplate: `%{y:,.4~g} ${chart.unit}`, connectgaps: false,
        line: { color: inks[i % inks.length], width: i ? 1.5 : 2, dash: DASHES[i % DASHES.length] },
      }));
      const layout = {
        margin: { l: 44, r: 6, t: 6, b: 22 }, height: 150, paper_bgcolor: "transparent", plot_bgcolor: "transparent", hovermode: "x unified",
        font: { family: p.font, size: 11, color: p.muted }, showlegend: lines.length > 1, uirevision: chart.key,
        legend: { orientation: "h", x: 1, xanchor: "right", y: 1.02, yanchor: "bottom", font: { size: 10 }, bgcolor: "transparent" },
        hoverlabel: { bgcolor: p.panel, bordercolor: p.edge, font: { color: p.ink } },
        xaxis: { gridcolor: p.line, zeroline: false, ticksuffix: " s", nticks: 6, fixedrange: true, range: [since(history), last(history).t] },
        yaxis: { gridcolor: p.line, zerolinecolor: p.line, rangemode: "tozero", nticks: 5, fixedrange: true, tickformat: "~s", ticksuffix: chart.unit === "s" ? "s" : "" },
        ...phases(this.model, p),
      };
      if (lines.length > 1) layout.margin.t = 24;
      Plotly.react(this.figures.get(chart.key).plot, lines, layout, { displayModeBar: false, responsive: true, showTips: false });
    }
  }
}

/** Where the axis begins: at the start of the run, if that was seen. */
const since = (history) => (history[0].t < 2 ? 0 : history[0].t);

/** Where filling, steady and draining began, as lines with their names. */
function phases(model, p) {
  const { snapshot, history } = model;
  const [from, to] = [since(history), last(history).t];
  const marks = [[0, "fill"], [snapshot.fill, "steady"]];
  if (snapshot.drain > 0) marks.push([snapshot.elapsed - snapshot.drain, "drain"]);
  const seen = marks.filter(([t]) => t !== null && t >= from && t <= to);
  const names = [];
  for (const [t, text] of seen) {
    const near = names.at(-1);
    if (near && t - near[0] < 0.15 * (to - from)) near[1] += `, ${text}`;
    else names.push([t, text]);
  }
  return {
    shapes: seen.map(([t]) => ({ type: "line", x0: t, x1: t, yref: "paper", y0: 0, y1: 1, line: { color: p.edge, width: 1, dash: "dot" } })),
    annotations: names.map(([t, text]) => ({ x: t, y: 0, yref: "paper", text, showarrow: false, xanchor: t > from + 0.8 * (to - from) ? "right" : "left", yanchor: "bottom", font: { size: 10, color: p.muted } })),
  };
}

/** What a report without a history can still show: the three phases and the percentiles. */
function totals(snapshot) {
  const parts = [["fill", snapshot.fill], ["steady", snapshot.steady?.seconds], ["drain", snapshot.drain]].filter(([, t]) => t > 0);
  const all = parts.reduce((sum, [, t]) => sum + t, 0) || 1;
  const bar = h("div", { class: "phases" }, parts.map(([name, t]) => {
    const part = h("span", { class: name, title: `${name} ${seconds(t)}` }, t / all > 0.12 ? `${name} ${seconds(t)}` : "");
    style(part, "width", `${(100 * t) / all}%`);
    return part;
  }));
  const columns = ["p50", "p90", "p99", "max"];
  const line = (name, of) => of && h("tr", {}, h("th", { scope: "row" }, name), columns.map((key) => h("td", { class: "num" }, seconds(of[key]))));
  return [
    h("p", { class: "quiet small" }, `Fill ${seconds(snapshot.fill)}, steady ${seconds(snapshot.steady?.seconds)} at ${rate(snapshot.steady?.rate)}, drain ${seconds(snapshot.drain)}. A report holds no history; the curves are drawn while a run is watched.`),
    bar,
    h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "latency"), columns.map((key) => h("th", { scope: "col", class: "num" }, key)))),
      h("tbody", {}, line("to the end", snapshot.latency), line("without the wait for order", snapshot.latency_unordered)))),
  ];
}
