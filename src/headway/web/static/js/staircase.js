// The staircase: a row per slot, time to the right. Zoom, pause, and one item followed through all rows.

import { onTheme, palette, patterns } from "./palette.js";
import { seconds } from "./format.js";
import { Timeline } from "./timeline.js";

const AXIS = 22;
const ZOOM = 1.5;
const LEAST_SECONDS = 1e-4;
const DENSE = 5; // pixels a span; with less for any row shares are drawn, for all of them
const BUCKET = 4;
const STACK = ["busy", "overhead", "blocked", "starved"];

/** Draws a `Timeline` on a canvas. What it is told to show stands in `span` (seconds), `end` and `live`. */
export class Staircase {
  /** `on.tip(text)`, `on.pick(seq)`, `on.moved()` (zoomed, panned or let go). */
  constructor(timeline, on = {}) {
    this.timeline = timeline;
    this.on = on;
    this.span = 10;
    this.end = 0;
    this.live = true;
    this.followed = null;
    this.life = [];
    this.playhead = null;
    this.tallest = 58;
    this.longest = 24;
    const canvas = this.canvas = document.createElement("canvas");
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-roledescription", "timeline");
    canvas.addEventListener("wheel", (e) => this.#wheel(e), { passive: false });
    canvas.addEventListener("pointerdown", (e) => this.#down(e));
    canvas.addEventListener("pointermove", (e) => this.#move(e));
    canvas.addEventListener("pointerup", (e) => this.#up(e));
    canvas.addEventListener("pointerleave", () => this.on.tip?.(""));
    canvas.addEventListener("keydown", (e) => this.#key(e));
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(canvas);
    this.unlisten = onTheme(() => { this.fills = null; this.draw(); });
  }

  close() { this.observer.disconnect(); this.unlisten(); }

  /** Pixels for the names: what the longest takes, though no more than a third. */
  get gutter() { return Math.min(this.wide / 3, 150, this.longest + 36); }

  get rowHeight() { return Math.round(Math.max(13, Math.min(this.tallest, 380 / Math.max(1, this.timeline.rows.length)))); }

  get start() { return this.end - this.span; }

  /** Seconds to begin with: about sixty calls of the busiest row, though at least two and at most ten seconds. */
  begin() {
    const { spans } = this.timeline.rows.reduce((a, b) => (b.spans.length > a.spans.length ? b : a));
    this.span = Math.min(10, Math.max(2, (60 * 2 * (spans.at(-1)[1] - spans[0][0])) / spans.length));
  }

  /** Show all there is. */
  fit() {
    this.span = Math.max(LEAST_SECONDS, (this.timeline.to - Math.max(0, this.timeline.from)) * 1.02);
    this.end = this.timeline.to + this.span * 0.005;
    this.draw();
  }

  x(t) { return this.gutter + ((t - this.start) / this.span) * (this.wide - this.gutter); }

  time(x) { return this.start + ((x - this.gutter) / (this.wide - this.gutter)) * this.span; }

  zoom(factor, around = this.live ? this.end : this.end - this.span / 2) {
    const most = Math.max(1, this.timeline.to - this.timeline.from) * 1.05;
    const span = Math.min(most, Math.max(LEAST_SECONDS, this.span * factor));
    this.end = around + (this.end - around) * (span / this.span);
    this.span = span;
    this.on.moved?.();
    this.draw();
  }

  pan(share) {
    this.live = false;
    this.end = Math.min(this.timeline.to + this.span / 2, Math.max(this.timeline.from + this.span / 4, this.end + this.span * share));
    this.on.moved?.();
    this.draw();
  }

  pause(on) {
    this.live = !on;
    this.on.moved?.();
    this.draw();
  }

  follow(seq, life) {
    this.followed = seq;
    this.life = life;
    const there = life.length && life.at(-1).to > this.start && life[0].from < this.end;
    if (life.length && !there) {
      this.live = false;
      const length = life.at(-1).to - life[0].from;
      this.span = Math.max(this.span, length * 1.4);
      this.end = life.at(-1).to + (this.span - length) / 2;
      this.on.moved?.();
    }
    this.draw();
  }

  #wheel(e) {
    if (!e.ctrlKey && !e.metaKey && !e.shiftKey && Math.abs(e.deltaY) >= Math.abs(e.deltaX)) return; // the page scrolls
    e.preventDefault();
    if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) this.pan((e.deltaX || e.deltaY) / 800);
    else this.zoom(e.deltaY > 0 ? 1.2 : 1 / 1.2, this.time(e.offsetX));
  }

  #down(e) { this.grab = { x: e.offsetX, end: this.end, moved: false }; this.canvas.setPointerCapture(e.pointerId); }

  #move(e) {
    const grab = this.grab;
    if (grab && e.buttons && (grab.moved || Math.abs(e.offsetX - grab.x) > 4)) {
      grab.moved = true;
      this.live = false;
      this.end = grab.end - ((e.offsetX - grab.x) / (this.wide - this.gutter)) * this.span;
      this.on.moved?.();
      this.draw();
    } else {
      const hit = this.#hit(e.offsetX, e.offsetY);
      this.on.tip?.(hit ? told(hit.row, hit.span) : "");
    }
  }

  #up(e) {
    const moved = this.grab?.moved;
    this.grab = null;
    if (moved) return;
    const hit = this.#hit(e.offsetX, e.offsetY);
    if (hit && hit.span[3] !== null && hit.span[3] !== undefined) {
      const [from, to, , first, last] = hit.span;
      const share = (this.time(e.offsetX) - from) / Math.max(1e-9, to - from);
      this.on.pick?.(Math.min(last ?? first, first + Math.floor(share * ((last ?? first) - first + 1))));
    }
  }

  #key(e) {
    const act = {
      ArrowLeft: () => this.pan(-0.15), ArrowRight: () => this.pan(0.15),
      "+": () => this.zoom(1 / ZOOM), "=": () => this.zoom(1 / ZOOM), "-": () => this.zoom(ZOOM),
      " ": () => this.pause(this.live), Home: () => this.fit(), End: () => this.pause(false),
    }[e.key];
    if (!act || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    act();
  }

  #hit(x, y) {
    const row = this.timeline.rows[Math.floor(y / this.rowHeight)];
    if (!row || x < this.gutter) return null;
    const span = Timeline.at(row, this.time(x), (2 * this.span) / (this.wide - this.gutter));
    return span && { row, span };
  }

  draw() {
    const rows = this.timeline.rows;
    const high = Math.max(1, rows.length) * this.rowHeight + AXIS;
    const wide = this.canvas.clientWidth;
    if (!wide) return;
    const ratio = devicePixelRatio || 1;
    if (this.wide !== wide || this.high !== high || this.ratio !== ratio) {
      Object.assign(this, { wide, high, ratio });
      this.canvas.width = Math.round(wide * ratio);
      this.canvas.height = Math.round(high * ratio);
      this.canvas.style.height = `${high}px`;
      this.fills = null;
    }
    if (this.live) this.end = this.timeline.to;
    const c = this.canvas.getContext("2d");
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.fills ??= patterns(c);
    const p = palette();
    c.fillStyle = p.panel;
    c.fillRect(0, 0, wide, high);
    c.font = `12px ${p.font}`;
    c.textBaseline = "middle";
    this.longest = Math.max(24, ...rows.map((row) => c.measureText(row.stage).width));
    this.#grid(c, p, high);
    c.save();
    c.beginPath();
    c.rect(this.gutter, 0, wide - this.gutter, high);
    c.clip();
    const seen = rows.map((row) => Timeline.visible(row, this.start, this.end));
    const dense = seen.some(([first, end]) => end - first > (wide - this.gutter) / DENSE);
    rows.forEach((row, i) => this.#row(c, p, row, i, seen[i], dense));
    this.#followed(c, p, rows);
    if (this.playhead !== null) {
      c.fillStyle = p.ink;
      c.fillRect(this.x(this.playhead) - 0.5, 0, 1.5, high - AXIS);
    }
    c.restore();
    this.#names(c, p, rows);
    const what = `${rows.length} slots, ${seconds(Math.max(0, this.start))} to ${seconds(this.end)}`;
    this.canvas.setAttribute("aria-label", `Timeline of ${what}. Arrows move, plus and minus zoom, space pauses.`);
  }

  #grid(c, p, high) {
    const step = niceStep(this.span / Math.max(2, (this.wide - this.gutter) / 110));
    for (let t = Math.ceil(Math.max(0, this.start) / step) * step; t <= this.end; t += step) {
      const x = this.x(t);
      c.fillStyle = p.line;
      c.fillRect(x, 0, 1, high - AXIS + 4);
      c.fillStyle = p.muted;
      const text = mark(Math.round(t / step) * step, step);
      const half = c.measureText(text).width / 2;
      if (x - half > this.gutter - 6 && x + half < this.wide) c.fillText(text, x - half, high - AXIS / 2 + 3);
    }
  }

  #row(c, p, row, i, [first, end], dense) {
    const y = i * this.rowHeight + 2;
    const tall = this.rowHeight - 4;
    if (dense) {
      this.#shares(c, row, first, end, y, tall);
      return;
    }
    for (let n = first; n < end; n += 1) {
      const [from, to, state, seq, last] = row.spans[n];
      const x = this.x(from);
      const wide = Math.max(0.7, this.x(to) - x - (this.x(to) - x > 4 ? 0.7 : 0));
      const idle = state === "starved" || !(state in this.fills); // lane_wait, throttled, paused wait too: the tip tells which
      c.fillStyle = idle ? this.fills.starved : this.fills[state];
      c.fillRect(x, y + (idle ? tall * 0.3 : 0), wide, idle ? tall * 0.4 : tall);
      if (state === "busy" && seq !== null && seq !== undefined && wide > 34 && tall > 11) {
        const text = last > seq ? `${seq}–${last}` : String(seq);
        if (c.measureText(text).width + 8 < wide) {
          c.fillStyle = p.panel;
          c.fillText(text, Math.max(x, this.gutter) + 4, y + tall / 2 + 0.5);
        }
      }
    }
  }

  /** Too many spans to tell apart: for each few pixels how the time was shared, stacked. */
  #shares(c, row, first, end, y, tall) {
    const most = Math.ceil((this.wide - this.gutter) / BUCKET);
    const buckets = STACK.map(() => new Float64Array(most));
    for (let n = first; n < end; n += 1) {
      const named = STACK.indexOf(row.spans[n][2]);
      const kind = named < 0 ? STACK.length - 1 : named;
      const a = Math.max(0, (this.x(row.spans[n][0]) - this.gutter) / BUCKET);
      const b = Math.min(most, (this.x(row.spans[n][1]) - this.gutter) / BUCKET);
      for (let k = Math.floor(a); k < b; k += 1) buckets[kind][k] += Math.min(b, k + 1) - Math.max(a, k);
    }
    const floor = new Float64Array(most);
    STACK.forEach((state, kind) => {
      c.fillStyle = this.fills[state];
      c.beginPath();
      for (let k = 0; k < most; k += 1) {
        const high = Math.min(1 - floor[k], buckets[kind][k]) * tall;
        if (high > 0.2) c.rect(this.gutter + k * BUCKET, y + tall - floor[k] * tall - high, BUCKET, high);
        floor[k] = Math.min(1, floor[k] + buckets[kind][k]);
      }
      c.fill();
    });
  }

  #followed(c, p, rows) {
    let before = null;
    for (const step of this.life) {
      const i = rows.findIndex((row) => row.stage === step.stage && row.slot === step.slot);
      if (i < 0) continue;
      const [a, b] = [this.x(step.from), this.x(step.to)];
      const y = i * this.rowHeight;
      c.strokeStyle = p.ink;
      c.lineWidth = 2;
      c.strokeRect(a - 1, y + 1, Math.max(3, b - a + 1), this.rowHeight - 2);
      if (before && (before[1] !== y + this.rowHeight / 2 || a - before[0] > 2)) {
        c.setLineDash([3, 3]);
        c.lineWidth = 1.5;
        c.beginPath();
        c.moveTo(before[0], before[1]);
        c.lineTo(a, y + this.rowHeight / 2);
        c.stroke();
        c.setLineDash([]);
      }
      before = [b, y + this.rowHeight / 2];
    }
  }

  #names(c, p, rows) {
    let stage = null;
    rows.forEach((row, i) => {
      const y = i * this.rowHeight;
      if (stage !== null && row.stage !== stage) {
        c.fillStyle = p.line;
        c.fillRect(0, y, this.wide, 1);
      }
      stage = row.stage;
      c.fillStyle = p.ink;
      c.fillText(cut(c, row.stage, this.gutter - 32), 2, y + this.rowHeight / 2);
      c.fillStyle = p.muted;
      const text = String(row.slot);
      c.fillText(text, this.gutter - 8 - c.measureText(text).width, y + this.rowHeight / 2);
    });
  }
}

/** A span in words. */
export function told(row, [from, to, state, first, last]) {
  const items = first === null || first === undefined ? "" : last > first ? `, items ${first.toLocaleString("en-US")} to ${last.toLocaleString("en-US")}` : `, item ${first.toLocaleString("en-US")}`;
  return `${row.stage} ${row.slot}: ${state} ${seconds(to - from)} at ${seconds(from)}${items}`;
}

function cut(c, text, wide) {
  if (c.measureText(text).width <= wide) return text;
  let n = text.length;
  while (n > 1 && c.measureText(`${text.slice(0, n)}…`).width > wide) n -= 1;
  return `${text.slice(0, n)}…`;
}

/** A time on the axis: as many digits as neighbours need to differ. */
function mark(t, step) {
  if (step < 1e-3 || t < 1) return seconds(t);
  const digits = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
  return `${t.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits })} s`;
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((m) => m * power).find((step) => step >= least);
}
