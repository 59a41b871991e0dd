// What if: sliders for workers, queue and window; the predicted rate at once; apply, and prediction against reality.

import { post, run as address } from "./api.js";
import { h, say, settled, show, style } from "./dom.js";
import { count, percent, plural, rate } from "./format.js";

const ROOMS = [null, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];
const SETTLES_S = 3;

export class WhatIf {
  constructor(model) {
    this.model = model;
    this.knobs = h("div", { class: "knobs" });
    this.big = h("p", { class: "big num" }, "–");
    this.range = h("p", { class: "small quiet" });
    this.next = h("p", { class: "small" });
    this.wrong = h("p", { class: "small wrong", role: "alert", hidden: true });
    this.apply = h("button", { type: "button", class: "main", disabled: true, on: { click: () => this.#apply() } }, "Apply");
    this.reset = h("button", { type: "button", disabled: true, on: { click: () => this.#reset() } }, "Reset");
    this.note = h("p", { class: "small quiet" });
    this.study = h("button", { type: "button", disabled: true, on: { click: () => this.#study() } }, "Measure instead");
    this.found = h("p", { class: "small", role: "status" });
    this.versus = h("div", { class: "versus", hidden: true, "aria-live": "off" },
      h("h3", {}, "Prediction against reality"),
      h("div", { class: "scale", "aria-hidden": "true" }, h("span", { class: "range" }), h("span", { class: "told" }), h("span", { class: "real" })),
      h("p", { class: "small" }));
    this.element = h("section", { class: "panel whatif", "aria-labelledby": "whatif-title" },
      h("header", {}, h("h2", { id: "whatif-title" }, "What if")), this.knobs,
      h("div", { class: "guess", role: "status" }, h("p", { class: "small quiet" }, "Predicted"), this.big, this.range, this.next),
      this.wrong, h("div", { class: "row" }, this.apply, this.reset, this.study), this.note, this.found, this.versus);
    this.ask = settled(() => this.#predict(), 90);
    this.now = {};
    this.wanted = { queue: null, window: null, workers: {} };
    this.sliders = new Map();
  }

  update() {
    const { snapshot } = this.model;
    if (!snapshot) return;
    const names = JSON.stringify(snapshot.stages.map((stage) => stage.name));
    if (names !== this.names) { this.names = names; this.#build(snapshot); }
    for (const stage of snapshot.stages) {
      const slider = this.sliders.get(stage.name);
      if (this.now[stage.name] === stage.workers) continue;
      const followed = !(stage.name in this.wanted.workers);
      this.now[stage.name] = stage.workers;
      if (followed) slider.input.value = stage.workers;
      this.#label(stage.name);
    }
    this.#buttons();
    this.#compare();
    if (!this.begun && this.model.reachable && measured(snapshot)) {
      this.begun = true;
      this.ask();
    }
  }

  #build(snapshot) {
    const most = Math.max(8, 2 * (snapshot.model?.cores ?? 4));
    const cards = snapshot.stages.map((stage) => {
      this.now[stage.name] = stage.workers;
      return this.#knob(stage.name, stage.name, 1, Math.max(most, 2 * stage.workers), stage.workers, this.#fixed(stage));
    });
    this.knobs.replaceChildren(...cards, this.#knob("\0queue", "Queue in front of each stage", 0, ROOMS.length - 1, 0),
      this.#knob("\0window", "Window", 0, ROOMS.length - 1, 0));
    for (const key of this.sliders.keys()) this.#label(key);
    say(this.range, "Too little is measured for a prediction yet.");
  }

  /** Why the workers of a stage cannot be another number, if so. */
  #fixed(stage) {
    const { scalable } = this.model.limits;
    return stage.alone || (scalable && !this.model.ended && !scalable.includes(stage.name)) ? "one at a time" : null;
  }

  #knob(key, text, min, max, value, fixed = null) {
    const id = `knob-${this.sliders.size}`;
    const input = h("input", { type: "range", id, min, max, step: 1, value, disabled: fixed !== null, on: { input: () => this.#moved(key) } });
    const output = h("output", { for: id, class: "num" });
    const root = h("div", { class: "knob" }, h("label", { for: id }, text), output, input);
    this.sliders.set(key, { input, output, root, fixed });
    return root;
  }

  #moved(key) {
    const value = this.sliders.get(key).input.valueAsNumber;
    if (key === "\0queue") this.wanted.queue = ROOMS[value];
    else if (key === "\0window") this.wanted.window = ROOMS[value];
    else if (value === this.now[key]) delete this.wanted.workers[key];
    else this.wanted.workers[key] = value;
    this.#label(key);
    this.#buttons();
    this.ask();
  }

  #label(key) {
    const { input, output, root, fixed } = this.sliders.get(key);
    const value = input.valueAsNumber;
    const room = key.startsWith("\0");
    const changed = room ? value > 0 : value !== this.now[key];
    root.classList.toggle("changed", changed);
    const text = fixed ?? (room ? (value ? plural(ROOMS[value], "row") : "as it is") : plural(value, "worker"));
    say(output, changed && !room && !fixed ? `${count(this.now[key])} → ${text}` : text);
    input.setAttribute("aria-valuetext", output.textContent);
  }

  get changed() { return Object.keys(this.wanted.workers).length > 0; }

  get rooms() { return this.wanted.queue !== null || this.wanted.window !== null; }

  #buttons() {
    const live = !this.model.ended && this.model.limits.controls;
    this.apply.disabled = !live || !this.changed || this.busy;
    this.reset.disabled = !this.changed && !this.rooms;
    const studied = this.#slowest();
    this.study.disabled = !live || this.studying || !studied;
    say(this.study, studied ? `Measure ${studied} at half its time` : "Measure instead");
    const { reachable, ended } = this.model;
    for (const { input, fixed } of this.sliders.values()) input.disabled = fixed !== null || !reachable;
    say(this.note, !reachable ? "The run has ended, and what computed this with it. Its report, opened with headway ui, can still be asked."
      : ended ? "The run has ended: this is what another one would do."
      : !live ? "This run takes no orders from here."
      : this.rooms ? "Apply changes workers; queue and window are set when a run starts." : "");
  }

  async #predict() {
    const asked = this.asked = {};
    this.abort?.abort();
    this.abort = new AbortController();
    try {
      const guess = await post(`${address(this.model.run.id)}/what-if`, this.wanted, this.abort.signal);
      if (asked !== this.asked) return;
      show(this.wrong, false);
      say(this.big, rate(guess.rate));
      const base = this.model.rate;
      const gain = base > 0 && (this.changed || this.rooms) ? `${guess.rate >= base ? "+" : "−"}${percent(Math.abs(guess.rate / base - 1))} against now · ` : "";
      say(this.range, `${gain}between ${rate(guess.low, "")} and ${rate(guess.high)}`);
      say(this.next, paced(guess, this.changed || this.rooms));
    } catch (error) {
      if (asked === this.asked) this.#fail(error);
    }
  }

  #fail(error) {
    show(this.wrong, true);
    say(this.wrong, error.message);
  }

  #reset() {
    this.wanted = { queue: null, window: null, workers: {} };
    for (const [key, { input }] of this.sliders) {
      input.value = key.startsWith("\0") ? 0 : this.now[key];
      this.#label(key);
    }
    this.#buttons();
    this.ask();
  }

  async #apply() {
    this.busy = true;
    this.#buttons();
    try {
      for (const [stage, workers] of Object.entries(this.wanted.workers)) {
        const { predicted } = await post(`${address(this.model.run.id)}/scale`, { stage, workers });
        this.told = { ...(predicted ?? {}), before: this.model.rate, since: this.model.t };
        this.now[stage] = workers;
        delete this.wanted.workers[stage];
        this.#label(stage);
      }
      show(this.wrong, false);
    } catch (error) {
      this.#fail(error);
    }
    this.busy = false;
    this.#buttons();
    this.#compare();
    this.ask();
  }

  /** The stage that sets the pace, if it can be studied. */
  #slowest() {
    const named = this.model.snapshot?.bottleneck?.stage;
    return this.model.snapshot?.stages.some((stage) => stage.name === named) ? named : null;
  }

  /** Measure on the run itself what shorter calls would give: the rest is made slower now and then, for ten seconds. */
  async #study() {
    const stage = this.#slowest();
    this.studying = true;
    this.#buttons();
    say(this.found, `Measuring for ten seconds; meanwhile the run is slower now and then.`);
    try {
      const effect = await post(`${address(this.model.run.id)}/study`, { stage, speedup: 0.5 });
      say(this.found, `With ${stage} at half its time: ${rate(effect.rate)} (${rate(effect.low, "")} to ${rate(effect.high)}), now ${rate(effect.base)}: ${effect.gain < 0 ? "−" : "+"}${percent(Math.abs(effect.gain))}, measured.`);
      show(this.wrong, false);
    } catch (error) {
      say(this.found, "");
      this.#fail(error);
    }
    this.studying = false;
    this.#buttons();
  }

  /** What was predicted at the last apply, and what came. */
  #compare() {
    const { told } = this;
    show(this.versus, told);
    if (!told) return;
    const points = this.model.history.filter((point) => point.t >= told.since + SETTLES_S);
    const first = points[0];
    const last = points.at(-1);
    const real = first && last.t > first.t ? (last.settled - first.settled) / (last.t - first.t) : null;
    const top = 1.1 * Math.max(told.high, told.before ?? 0, real ?? 0);
    const [, scale, text] = this.versus.children;
    const at = (x) => `${((100 * x) / top).toFixed(1)}%`;
    style(scale.querySelector(".range"), "left", at(told.low));
    style(scale.querySelector(".range"), "width", at(told.high - told.low));
    style(scale.querySelector(".told"), "left", at(told.rate));
    show(scale.querySelector(".real"), real !== null);
    style(scale.querySelector(".real"), "left", at(real ?? 0));
    if (told.rate === null) { say(text, `no prediction was possible; measured ${rate(real)}, before ${rate(told.before)}`); return; }
    const hit = real >= told.low && real <= told.high ? "within what was predicted" : real > told.high ? "more than predicted" : "less than predicted";
    say(text, `predicted ${rate(told.rate, "")} (${rate(told.low, "")} to ${rate(told.high)}); ${real === null ? "measuring" : `measured ${rate(real)}: ${hit}`}; before ${rate(told.before)}`);
  }
}

/** Whether anything can be said of what other settings would give. */
const measured = ({ rate: now, stages }) => now > 0 && stages.some((stage) => stage.capacity);

/** What holds the rate back, now and with other settings. */
function paced({ bottleneck, next_bottleneck: next }, other) {
  if (!other || !next) return bottleneck ? `${bottleneck} sets the pace` : "";
  return next === bottleneck ? `${next} still sets the pace` : `then ${next} sets the pace`;
}

/** Whether the server can predict for this run. */
export const predicts = (model) => !model.local && model.run.source !== "trace" && Boolean(model.snapshot?.stages?.length);

