// The panel around the staircase: zoom, pause, and the life of the item that is followed.

import { get, run as address } from "./api.js";
import { h, legend, say, show, STATES } from "./dom.js";
import { count, seconds } from "./format.js";
import { Staircase } from "./staircase.js";

const HELP = "Hover or tap a block for its times; click it to follow an item. Drag to move, Ctrl and wheel to zoom.";

const moment = (t) => `${t.toLocaleString("en-US", { minimumFractionDigits: 4, maximumFractionDigits: 4 })} s`;

export class Stairs {
  /** `model`: the run. `title`: the heading. */
  constructor(model, title = "How it plays out in time") {
    this.model = model;
    this.tip = h("p", { class: "tip" }, HELP);
    this.stairs = new Staircase(model.timeline, {
      tip: (text) => say(this.tip, text || HELP), pick: (seq) => this.follow(seq), moved: () => this.#tools(),
    });
    const button = (text, label, click) => h("button", { type: "button", class: text.length < 3 ? "icon" : "", "aria-label": label, on: { click } }, text);
    this.pause = h("button", { type: "button", "aria-pressed": "false", on: { click: () => this.stairs.pause(this.stairs.live) } }, "Pause");
    this.item = h("input", { type: "number", min: 0, step: 1, inputmode: "numeric", on: { change: () => this.#typed() } });
    this.life = h("div", { class: "life", "aria-live": "polite", hidden: true });
    this.empty = h("div", { class: "blank slim", hidden: true }, h("p", {}, ""));
    this.tools = h("div", { class: "tools", role: "group", "aria-label": "Timeline" },
      h("label", {}, "Follow item", this.item),
      button("−", "Zoom out", () => this.stairs.zoom(1.5)), button("+", "Zoom in", () => this.stairs.zoom(1 / 1.5)),
      button("All", "Show all that is recorded", () => { this.stairs.live = false; this.stairs.fit(); this.#tools(); }), this.pause);
    this.stack = h("div", { class: "stack" }, this.stairs.canvas);
    this.element = h("section", { class: "panel stairs", "aria-labelledby": "stairs-title" },
      h("header", {}, h("h2", { id: "stairs-title" }, title), this.tools), this.stack, this.empty, this.tip, model.snapshot ? null : legend(STATES.slice(0, 1)), this.life);
    if (model.ended && model.timeline.rows.length) this.stairs.fit();
  }

  close() { this.stairs.close(); }

  update() {
    const some = this.model.timeline.rows.some((row) => row.spans.length > 0);
    show(this.stack, some);
    show(this.tools, some);
    show(this.tip, some);
    show(this.empty, !some);
    if (!some) {
      say(this.empty.firstChild, this.model.ended
        ? "This report holds totals, not calls. A run with trace=\"run.trace\" records every call; open that file to see them here."
        : "No call yet.");
      return;
    }
    if (this.model.ended && this.stairs.live) {
      this.stairs.live = false;
      if (!this.seen) this.stairs.fit();
    }
    show(this.pause, !this.model.ended);
    if (!this.seen && !this.model.ended) this.stairs.begin();
    this.seen = true;
    if (this.stairs.live || !this.drawn) this.stairs.draw();
    this.drawn = true;
    this.#tools();
  }

  #tools() {
    const paused = !this.stairs.live;
    this.pause.setAttribute("aria-pressed", String(paused));
    say(this.pause, paused ? "Paused" : "Pause");
  }

  #typed() {
    const seq = this.item.valueAsNumber;
    if (Number.isInteger(seq) && seq >= 0) this.follow(seq);
    else this.unfollow();
  }

  unfollow() {
    this.item.value = "";
    show(this.life, false);
    this.stairs.follow(null, []);
  }

  async follow(seq) {
    this.item.value = seq;
    let steps = this.model.timeline.life(seq);
    if (this.model.reachable) {
      try {
        const told = (await get(`${address(this.model.run.id)}/items/${seq}`)).steps;
        if (told.length) steps = told; // exact, where a span here may stand for a block with gaps
      } catch (error) {
        if (!steps.length) return this.#say(seq, error.message);
      }
    }
    if (this.item.value !== String(seq)) return undefined; // another was asked for meanwhile
    this.stairs.follow(seq, steps);
    return this.#say(seq, steps.length ? "" : "Nothing is recorded of it: it has not been read yet, or was done before the recorded seconds.", steps);
  }

  #say(seq, text, steps = []) {
    const rows = steps.map(({ stage, slot, state, from, to }) => h("tr", {}, h("th", { scope: "row" }, slot === null ? stage : `${stage} ${slot}`),
      h("td", {}, state), h("td", { class: "num" }, moment(from)), h("td", { class: "num" }, seconds(to - from))));
    const all = steps.length ? `${seconds(steps.at(-1).to - steps[0].from)} from first to last` : text;
    this.life.replaceChildren(
      h("div", { class: "row" }, h("h3", {}, `Item ${count(seq)}`), h("span", { class: "quiet" }, all), h("span", { class: "grow" }),
        h("button", { type: "button", on: { click: () => this.unfollow() } }, "Stop following")),
      steps.length ? h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["slot", "state"].map((t) => h("th", { scope: "col" }, t)),
        ["from", "took"].map((t) => h("th", { scope: "col", class: "num" }, t)))), h("tbody", {}, rows))) : "");
    show(this.life, true);
  }
}
