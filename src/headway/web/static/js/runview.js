// One run on one screen: how fast and what holds it back, where, in time, what if; below, charts and dead letters.

import { get, run as address } from "./api.js";
import { Charts } from "./charts.js";
import { h, say, show } from "./dom.js";
import { bytes, count, item, rate, seconds } from "./format.js";
import { Controls, Letters } from "./letters.js";
import { Model } from "./model.js";
import { Picture } from "./picture.js";
import { Stairs } from "./stairs.js";
import { Stream } from "./stream.js";
import { predicts, WhatIf } from "./whatif.js";

const WORDS = { running: "running", draining: "draining", done: "done", failed: "failed", cancelled: "cancelled", drained: "drained" };

class RunView {
  constructor(model, root) {
    this.model = model;
    this.headline = h("h1", {}, "");
    this.pill = h("span", { class: "pill", role: "status" });
    this.facts = h("p", { class: "facts" });
    this.numbers = new Map();
    this.controls = new Controls(model);
    this.parts = [this.controls, new Picture(), new Stairs(model), predicts(model) ? new WhatIf(model) : null, new Charts(model), new Letters(model)];
    const [, picture, stairs, whatif, charts, letters] = this.parts;
    picture.element.hidden = !model.snapshot;
    this.advice = h("p", { class: "notice", hidden: true });
    this.element = h("div", {},
      h("section", { class: "answer", "aria-label": "How fast, and what holds it back" }, this.headline, this.controls.element, this.facts));
    root.replaceChildren(...this.element.childNodes, this.advice, picture.element,
      whatif ? h("div", { class: "split" }, stairs.element, whatif.element) : stairs.element, ...(model.snapshot ? [charts.element, letters.element] : []));
    this.update();
  }

  update() {
    const { model } = this;
    say(this.headline, model.sentence || "Nothing measured yet.");
    this.#facts();
    for (const part of this.parts) part?.update(model);
    const errors = model.run.state === "failed" ? model.snapshot?.failures?.[0] : null;
    show(this.advice, errors);
    if (errors) say(this.advice, `The run failed: ${errors.error} in ${errors.stage}, item ${item(errors.seq)}: ${errors.message}`);
    document.title = `${model.run.name} · ${WORDS[model.run.state] ?? model.run.state} · Headway`;
  }

  #facts() {
    const { run, snapshot, memory } = this.model;
    say(this.pill, WORDS[run.state] ?? run.state);
    this.pill.dataset.state = run.state;
    if (this.pill.parentNode !== this.facts) this.facts.replaceChildren(this.pill);
    if (!snapshot) return;
    const { items } = snapshot;
    const list = [
      ["rate", rate(this.model.rate), this.model.ended ? "steady" : "now"], ["elapsed", seconds(snapshot.elapsed), ""], ["read", count(items.read), "read"], ["written", count(items.written), "written"],
      ["filtered", items.filtered ? count(items.filtered) : "", "filtered"], ["dead", items.dead ? count(items.dead) : "", "dead"],
      ["unread", items.unread ? count(items.unread) : "", "unread"],
      ["latency", snapshot.latency?.p99 ? seconds(snapshot.latency.p99) : "", "latency p99"], ["memory", memory ? bytes(memory) : "", "memory"],
    ];
    for (const [key, value, unit] of list) {
      let fact = this.numbers.get(key);
      if (!fact) {
        fact = h("span", { class: key === "dead" ? "bad" : "", data: { fact: key } }, h("b", { class: "num" }), h("span"));
        this.numbers.set(key, fact);
        this.facts.append(fact);
      }
      show(fact, value);
      say(fact.firstChild, value);
      say(fact.lastChild, unit ? ` ${unit}` : "");
    }
  }

  close() {
    this.stream?.close();
    for (const part of this.parts) part?.close?.();
  }
}

/** Show run `id` in `root`; `link(state, text)` tells how the connection is, `changed(run)` its end. Returns what closes the view. */
export async function openRun(id, root, link, changed) {
  const model = new Model(await get(address(id)));
  const view = new RunView(model, root);
  let due = 0;
  const later = () => { due ||= requestAnimationFrame(() => { due = 0; view.update(); }); };
  view.stream = new Stream(`${address(id)}/events`, {
    link: (state, text) => link(state, text),
    snapshot: (event) => { model.onSnapshot(event); later(); },
    timeline: (event) => { model.onTimeline(event); later(); },
    dead: (event) => { model.onDead(event); later(); },
    end: (event) => { model.onEnd(event); later(); changed(model.run); },
  });
  return view;
}

/** Show what a file held: `{run, plan, snapshot, sentence, timeline}`. */
export function openLocal(opened, root, link) {
  const model = new Model({ ...opened, limits: { controls: false } });
  model.local = true;
  if (opened.timeline) {
    model.timeline.order(opened.stages ?? model.snapshot?.stages.map((stage) => stage.name) ?? []);
    model.onTimeline(opened.timeline);
  }
  link("ended", "from a file");
  return new RunView(model, root);
}

