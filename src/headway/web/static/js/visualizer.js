// The visualizer: needs no run. What it plays was computed by the engine itself on its virtual clock, on the server.

import { get, post } from "./api.js";
import { h, legend, say, settled, show } from "./dom.js";
import { seconds } from "./format.js";
import { Playback } from "./playback.js";
import { Scene } from "./scene.js";
import { Settings } from "./settings.js";
import { Spark, waiting } from "./spark.js";
import { Staircase } from "./staircase.js";
import { Timeline } from "./timeline.js";

const SPEEDS = [["40", "slow"], ["15", "normal"], ["5", "fast"]];
const calm = matchMedia("(prefers-reduced-motion: reduce)");

/** One of the settings that are compared: what it said, and how it plays. */
class Side {
  constructor(letter, value, changed) {
    this.letter = letter;
    this.wrong = h("p", { class: "wrong", role: "alert", hidden: true });
    this.sentence = h("p", { class: "told", role: "status" }, "Computing…");
    this.play = h("div", { class: "play" });
    this.settings = new Settings(value, `Settings ${letter}`, () => changed(this));
    this.label = h("span", { class: "letter" }, letter);
    this.element = h("section", { class: "panel side", "aria-label": `Setting ${letter}` },
      h("div", { class: "stagey" }, h("div", { class: "heading" }, this.label, this.sentence), this.wrong, this.play), this.settings.element);
  }

  async compute() {
    const turn = this.turn = {};
    try {
      const value = structuredClone(this.settings.value);
      const result = await post("/api/simulate", value);
      if (turn !== this.turn) return false;
      this.playback = new Playback(result, value);
      say(this.sentence, result.sentence);
      show(this.wrong, false);
      return true;
    } catch (error) {
      if (turn === this.turn) { show(this.wrong, true); say(this.wrong, error.message); }
      return false;
    }
  }

  /** Draw for an axis of `end` seconds and `most` rows. */
  build(end, most) {
    this.close();
    const { playback } = this;
    const timeline = new Timeline();
    timeline.order(playback.stages);
    timeline.add(playback.result.timeline);
    this.stairs = new Staircase(timeline, {});
    this.stairs.tallest = 26;
    this.stairs.live = false;
    this.stairs.span = end * 1.01;
    this.stairs.end = end * 1.01;
    this.stairs.on.pick = (seq) => this.stairs.follow(seq, timeline.life(seq));
    this.tip = h("p", { class: "small quiet tip" }, "Click a call to follow its item.");
    this.stairs.on.tip = (text) => say(this.tip, text || "Click a call to follow its item.");
    this.scene = new Scene(playback);
    this.spark = new Spark(waiting(playback.result, playback.stages), end, most, playback.end);
    this.play.replaceChildren(this.scene.element, this.stairs.canvas, this.tip, this.spark.element);
    this.stairs.draw();
  }

  update(t) {
    if (!this.scene) return;
    const mine = Math.min(t, this.playback.end);
    this.scene.update(mine);
    this.spark.update(mine);
    this.stairs.playhead = mine;
    this.stairs.draw();
  }

  close() { this.stairs?.close(); }
}

class Visualizer {
  constructor(root, presets) {
    this.presets = presets;
    this.sides = [];
    this.t = 0;
    this.end = 1;
    this.title = h("h1", {}, "");
    this.text = h("p", { class: "quiet lead" });
    this.chips = presets.map((preset) => h("button", { type: "button", "aria-pressed": "false", on: { click: () => this.choose(preset, true) } }, preset.title));
    this.button = h("button", { type: "button", class: "main", on: { click: () => this.#toggle() } }, "Play");
    this.scrub = h("input", { type: "range", min: 0, max: 1000, step: 1, value: 0, "aria-label": "Moment", on: { input: () => this.#seek((this.scrub.valueAsNumber / 1000) * this.end) } });
    this.clock = h("output", { class: "num clock" });
    this.speed = h("select", { "aria-label": "Speed" }, SPEEDS.map(([value, text]) => h("option", { value }, text)));
    this.speed.value = "15";
    this.compare = h("button", { type: "button", "aria-pressed": "false", on: { click: () => this.#compare() } }, "Compare two");
    const step = (text, label, way) => h("button", { type: "button", class: "icon", "aria-label": label, on: { click: () => this.#step(way) } }, text);
    this.grid = h("div", { class: "sides" });
    root.replaceChildren(
      h("section", { class: "answer try", "aria-label": "What is shown" }, this.title, this.text),
      h("div", { class: "chips", role: "group", "aria-label": "Presets" }, this.chips),
      h("div", { class: "transport panel", role: "group", "aria-label": "Playing" }, this.button, step("‹", "One step back", -1), step("›", "One step on", 1), this.scrub, this.clock, this.speed, this.compare),
      this.grid, legend());
    this.again = settled((side) => this.#computed([side]), 250);
    document.title = "Visualizer · Headway";
  }

  async choose(preset, play) {
    this.presets.forEach((one, i) => this.chips[i].setAttribute("aria-pressed", String(one === preset)));
    say(this.title, preset.title);
    say(this.text, preset.text);
    this.#pause();
    this.#seat([preset.settings, preset.compare].filter(Boolean));
    await this.#computed(this.sides);
    if (play && !calm.matches) this.#toggle();
  }

  #seat(values) {
    for (const side of this.sides) side.close();
    this.sides = values.map((value, i) => new Side("AB"[i], value, (side) => this.again(side)));
    this.grid.replaceChildren(...this.sides.map((side) => side.element));
    const two = this.sides.length > 1;
    this.grid.classList.toggle("two", two);
    for (const side of this.sides) show(side.label, two);
    this.compare.setAttribute("aria-pressed", String(two));
    say(this.compare, two ? "Compare off" : "Compare two");
  }

  async #compare() {
    const [first] = this.sides;
    if (!first) return;
    this.#pause();
    const value = first.settings.value;
    this.#seat(this.sides.length > 1 ? [value] : [value, value]);
    await this.#computed(this.sides);
  }

  async #computed(sides) {
    const done = await Promise.all(sides.map((side) => side.compute()));
    if (this.closed || !done.some(Boolean)) return;
    const ready = this.sides.filter((side) => side.playback);
    this.end = Math.max(...ready.map((side) => side.playback.end)) || 1;
    const most = Math.max(1, ...ready.flatMap((side) => waiting(side.playback.result, side.playback.stages).map((point) => Math.max(point[1], point[2]))));
    for (const side of ready) side.build(this.end, most);
    this.#seek(0);
  }

  #seek(t) {
    this.t = Math.max(0, Math.min(this.end, t));
    for (const side of this.sides) side.update(this.t);
    const at = String(Math.round((this.t / this.end) * 1000));
    if (this.scrub.value !== at) this.scrub.value = at;
    say(this.clock, `${seconds(this.t)} of ${seconds(this.end)}`);
    this.scrub.setAttribute("aria-valuetext", this.clock.textContent);
  }

  #step(way) {
    this.#pause();
    const ready = this.sides.filter((side) => side.playback);
    const next = ready.map((side) => side.playback.step(this.t, way));
    if (next.length) this.#seek(way > 0 ? Math.min(...next) : Math.max(...next));
  }

  #toggle() {
    if (this.frame) { this.#pause(); return; }
    if (this.t >= this.end) this.#seek(0);
    say(this.button, "Pause");
    let last = performance.now();
    const turn = (now) => {
      this.#seek(this.t + ((now - last) / 1000) * (this.end / Number(this.speed.value)));
      last = now;
      if (this.t >= this.end) this.#pause();
      else this.frame = requestAnimationFrame(turn);
    };
    this.frame = requestAnimationFrame(turn);
  }

  #pause() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    say(this.button, "Play");
  }

  close() {
    this.closed = true;
    this.#pause();
    for (const side of this.sides) side.close();
  }
}

export async function openVisualizer(root) {
  const { presets } = await get("/api/presets");
  const made = new Visualizer(root, presets);
  if (presets.length) await made.choose(presets[0], false);
  return made;
}
