// Dead letters, newest first, with their errors; and the controls of a live run.

import { post, run as address } from "./api.js";
import { confirm, h, say, show } from "./dom.js";
import { item, plural } from "./format.js";

const MOST_ROWS = 100;

export class Letters {
  constructor(model) {
    this.model = model;
    this.number = h("span", { class: "quiet", role: "status" });
    this.body = h("tbody");
    this.table = h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Dead letters, newest first" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col", class: "num" }, "item"), ["stage", "error", "value"].map((text) => h("th", { scope: "col" }, text)))), this.body));
    this.none = h("p", { class: "quiet" });
    this.element = h("section", { class: "panel dead", "aria-labelledby": "dead-title" },
      h("header", {}, h("h2", { id: "dead-title" }, "Dead letters"), this.number), this.none, this.table);
    this.shown = null;
  }

  update() {
    const { dead, snapshot } = this.model;
    const total = Math.max(snapshot?.items.dead ?? 0, dead.length);
    say(this.number, total ? plural(total, "row") : "");
    show(this.none, !dead.length);
    show(this.table, dead.length);
    say(this.none, total ? "Their errors were not kept." : "None: every row so far has gone through.");
    if (dead[0] === this.shown) return;
    this.shown = dead[0];
    this.body.replaceChildren(...dead.slice(0, MOST_ROWS).map((letter) => h("tr", {},
      h("td", { class: "num" }, item(letter.seq)), h("td", {}, String(letter.stage ?? "")),
      h("td", {}, h("b", {}, String(letter.error ?? "")), ` ${letter.message ?? ""}`),
      h("td", {}, h("code", {}, String(letter.value ?? ""))))));
  }
}

const ASKS = {
  drain: ["Drain", "Drain this run?", "Nothing more is read. What was read is finished and written, then the run ends.", "Drain"],
  cancel: ["Cancel", "Cancel this run?", "It stops now. What is being worked on is given up and counted as unread; what was written stays.", "Cancel the run"],
};

export class Controls {
  constructor(model) {
    this.model = model;
    this.wrong = h("p", { class: "wrong small", role: "alert", hidden: true });
    this.buttons = Object.fromEntries(Object.entries(ASKS).map(([verb, [text, title, what, yes]]) => [verb,
      h("button", { type: "button", on: { click: async () => { if (await confirm(title, what, yes)) await this.#ask(verb); } } }, text)]));
    this.export = model.local ? null : h("a", { class: "button", href: `${address(model.run.id)}/export`, download: "" }, "Export HTML");
    this.element = h("div", { class: "controls" }, h("div", { class: "row" }, this.buttons.drain, this.buttons.cancel, this.export), this.wrong);
  }

  update() {
    const live = !this.model.ended && this.model.limits.controls;
    show(this.buttons.drain, live);
    show(this.buttons.cancel, live);
    if (this.export) show(this.export, this.model.reachable);
    this.buttons.drain.disabled = this.model.run.state === "draining";
  }

  async #ask(verb) {
    try {
      const { state } = await post(`${address(this.model.run.id)}/${verb}`);
      if (!this.model.ended) this.model.run = { ...this.model.run, state };
      show(this.wrong, false);
    } catch (error) {
      show(this.wrong, true);
      say(this.wrong, error.message);
    }
    this.update();
  }
}
