// The form of the visualizer: stages, times, jitter, workers, queues, window, order, and what goes wrong.

import { h } from "./dom.js";

const JITTER = [["none", "always the same"], ["exp", "exponential"], ["heavy", "now and then ten times"]];
const STAGE = { time: 0, jitter: "none", workers: 1, queue: null };
const WHOLE = {
  source_time: 0, items: 100, window: null, order: "input", seed: 0, fail_at: null, slow_at: null, unbounded: false,
  stop_at: null, stop: null, supervised: false,
};
const NEW_STAGE = { time: 0.002, workers: 1, queue: 4 };
let forms = 0;

export class Settings {
  /** `value`: a body of /api/simulate; `changed` is called with the new one. */
  constructor(value, title, changed) {
    this.value = { ...WHOLE, ...structuredClone(value), stages: value.stages.map((stage) => ({ ...STAGE, ...stage })) };
    this.changed = changed;
    this.id = `f${(forms += 1)}`;
    this.body = h("div", { class: "settings-body" });
    this.element = h("fieldset", { class: "settings" }, h("legend", { class: "sr" }, title), this.body);
    this.#build();
  }

  #tell() { this.changed(this.value); }

  #number(label, of, key, { scale = 1, min = 0, max, step = "any", empty = null } = {}) {
    const id = `${this.id}-${label.replace(/\W+/g, "-")}`;
    const now = of[key];
    const input = h("input", { type: "number", id, min, max, step, value: now === null || now === undefined ? "" : Number((now * scale).toPrecision(8)), placeholder: empty ?? "" });
    input.addEventListener("input", () => {
      const value = input.valueAsNumber;
      const blank = input.value === "";
      if (!blank && !input.checkValidity()) return;
      if (blank && empty === null) return;
      of[key] = blank ? null : value / scale;
      this.#tell();
    });
    return { id, input };
  }

  #field(label, unit, ...rest) {
    const { id, input } = this.#number(label, ...rest);
    return h("div", { class: "field" }, h("label", { for: id }, label), h("span", { class: "unit" }, input, unit ? h("span", { class: "small quiet" }, unit) : null));
  }

  #select(label, options, now, take) {
    const id = `${this.id}-${label.replace(/\W+/g, "-")}`;
    const select = h("select", { id, on: { change: () => { take(select.value); this.#tell(); } } }, options.map(([value, text]) => h("option", { value }, text)));
    select.value = now;
    return { id, select };
  }

  #check(label, key) {
    const input = h("input", { type: "checkbox", on: { change: () => { this.value[key] = input.checked; this.#tell(); } } });
    input.checked = Boolean(this.value[key]);
    return h("label", { class: "check" }, input, label);
  }

  #build() {
    const { value } = this;
    const order = this.#select("order out", [["input", "as read"], ["none", "as it comes"]], value.order, (v) => { value.order = v; });
    const stop = this.#select("stop", [["", "never"], ["drain", "drain"], ["cancel", "cancel"]], value.stop ?? "", (v) => {
      value.stop = v || null;
      value.stop_at = v ? value.stop_at ?? 0.05 : null;
      at.hidden = !v;
    });
    const at = this.#field("stop at", "ms", value, "stop_at", { scale: 1000, empty: "never" });
    at.hidden = !value.stop;
    this.body.replaceChildren(
      h("div", { class: "scroll" }, h("table", { class: "stages" }, h("thead", {}, h("tr", {}, ["stage", "ms a call", "varies", "workers", "queue", ""].map((text) =>
        h("th", { scope: "col" }, text || h("span", { class: "sr" }, "remove"))))), h("tbody", {}, value.stages.map((stage, i) => this.#stage(stage, i))))),
      h("div", {}, h("button", { type: "button", on: { click: () => this.#add() } }, "Add a stage")),
      h("div", { class: "fields" },
        this.#field("items", "", value, "items", { min: 1, max: 10_000, step: 1 }),
        this.#field("source takes", "ms", value, "source_time", { scale: 1000 }),
        this.#field("window", "rows", value, "window", { min: 1, step: 1, empty: "auto" }),
        h("div", { class: "field" }, h("label", { for: order.id }, "order out"), order.select),
        this.#field("poison item", "", value, "fail_at", { step: 1, empty: "none" }),
        this.#field("straggler", "", value, "slow_at", { step: 1, empty: "none" }),
        this.#field("seed", "", value, "seed", { step: 1 }),
        h("div", { class: "field" }, h("label", { for: stop.id }, "stop"), stop.select), at),
      h("div", { class: "row" }, this.#check("queues without a bound", "unbounded"), this.#check("supervised workers", "supervised")));
  }

  #stage(stage, i) {
    const named = (label) => `${label} of stage ${i + 1}`;
    const name = h("input", { type: "text", value: stage.name, class: "name", size: 8, maxlength: 24, "aria-label": named("name"), on: { change: () => {
      const wanted = name.value.trim();
      if (wanted && !this.value.stages.some((other) => other !== stage && other.name === wanted)) { stage.name = wanted; this.#tell(); } else name.value = stage.name;
    } } });
    const number = (label, key, options) => {
      const { input } = this.#number(`${label}-${i}`, stage, key, options);
      input.setAttribute("aria-label", named(label));
      return h("td", {}, input);
    };
    const jitter = this.#select(`jitter-${i}`, JITTER, stage.jitter, (v) => { stage.jitter = v; }).select;
    jitter.setAttribute("aria-label", named("variation"));
    const gone = h("button", { type: "button", class: "icon", "aria-label": `Remove stage ${stage.name}`, disabled: this.value.stages.length < 2, on: { click: () => { this.value.stages.splice(i, 1); this.#build(); this.#tell(); } } }, "×");
    return h("tr", {}, h("td", {}, name), number("milliseconds", "time", { scale: 1000 }), h("td", {}, jitter),
      number("workers", "workers", { min: 1, max: 64, step: 1 }), number("queue", "queue", { min: 1, step: 1, empty: "auto" }), h("td", {}, gone));
  }

  #add() {
    const names = new Set(this.value.stages.map((stage) => stage.name));
    let n = this.value.stages.length + 1;
    while (names.has(`stage${n}`)) n += 1;
    this.value.stages.push({ ...STAGE, ...NEW_STAGE, name: `stage${n}` });
    this.#build();
    this.#tell();
  }
}
