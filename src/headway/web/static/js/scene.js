// The items of a simulated run as tiles: in queues, with workers, at the gate, out. Tiles move only where an item moved.

import { h, say, show, width } from "./dom.js";
import { count, plural } from "./format.js";
import { Playback } from "./playback.js";

const MOST_TILES = 40;
const MOST_MOVES = 48;
const MOVE_MS = 220;
const calm = matchMedia("(prefers-reduced-motion: reduce)");

export class Scene {
  constructor(playback) {
    this.playback = playback;
    this.tiles = new Map();
    this.lanes = new Map();
    const { stages, settings } = playback;
    const rows = [this.#lane("source", "source", "")];
    for (const name of stages) {
      if (playback.gateAt === name) rows.push(this.#lane("gate", "gate", "holds the row"));
      rows.push(this.#stage(name, settings.stages.find((stage) => stage.name === name), settings.unbounded));
    }
    if (playback.gateAt && !stages.includes(playback.gateAt)) rows.push(this.#lane("gate", "gate", "holds the row"));
    rows.push(this.#lane("out", "out", "in the order of their coming"), this.#lane("dead", "dead", ""), this.#lane("left", "given up", ""));
    this.element = h("ol", { class: "scene" }, rows);
  }

  #lane(key, name, note) {
    const lane = { tiles: h("div", { class: "tiles" }), more: h("span", { class: "small quiet more" }), note: h("span", { class: "small quiet" }, note) };
    lane.root = h("li", { class: `lane ${key}` }, h("div", { class: "name" }, h("b", {}, name), lane.note), h("div", { class: "tiles-row" }, lane.tiles, lane.more));
    this.lanes.set(key, lane);
    return lane.root;
  }

  #stage(name, stage, unbounded) {
    const lane = { tiles: h("div", { class: "tiles" }), more: h("span", { class: "small quiet more" }), slots: new Map() };
    const most = unbounded ? null : stage?.queue;
    lane.note = h("span", { class: "small quiet" }, most ? `queue of ${count(most)}` : "queue without a bound");
    const boxes = h("div", { class: "slots" });
    for (const { stage: of, slot } of this.playback.slots) {
      if (of !== name) continue;
      const box = { seat: h("span", { class: "seat" }), fill: h("span", { class: "fill" }), word: h("span", { class: "small word" }) };
      box.root = h("div", { class: "slot" }, box.seat, h("span", { class: "progress", "aria-hidden": "true" }, box.fill), box.word);
      lane.slots.set(slot, box);
      boxes.append(box.root);
    }
    const holes = most && most <= 24 ? Array.from({ length: most }, () => h("span", { class: "hole" })) : [];
    lane.root = h("li", { class: "lane stage" }, h("div", { class: "name" }, h("b", {}, name), lane.note),
      h("div", { class: "queue-row" }, h("div", { class: "waiting" }, h("div", { class: "holes", "aria-hidden": "true" }, holes), lane.tiles), lane.more), boxes);
    this.lanes.set(name, lane);
    return lane.root;
  }

  update(t) {
    const now = this.playback.at(t);
    const places = new Map();
    const put = (key, seqs, newest = false) => {
      const lane = this.lanes.get(key);
      if (!lane) return;
      const kept = newest ? seqs.slice(-MOST_TILES) : seqs.slice(0, MOST_TILES);
      for (const seq of kept) places.set(seq, lane.tiles);
      const rest = seqs.length - kept.length;
      say(lane.more, rest ? (newest ? `and ${count(rest)} before` : `and ${count(rest)} more`) : "");
    };
    for (const name of this.playback.stages) put(name, now.queues[name]);
    put("gate", now.held.sort((a, b) => a - b));
    put("out", now.out, true);
    put("dead", now.dead, true);
    put("left", now.left, true);
    this.#seats(now, t, places);
    this.#move(places);
    this.#words(now);
  }

  #seats(now, t, places) {
    for (const name of this.playback.stages) {
      const lane = this.lanes.get(name);
      const calls = new Map();
      for (const call of now.calls) if (call.stage === name && !calls.has(call.slot)) calls.set(call.slot, call);
      for (const [slot, box] of lane.slots) {
        const call = calls.get(slot);
        const state = call ? "busy" : this.playback.state(name, slot, t) ?? "starved";
        if (call) places.set(call.seq, box.seat);
        box.root.dataset.state = state;
        say(box.word, state);
        width(box.fill, call?.share ?? 0);
      }
    }
  }

  #move(places) {
    const moved = [];
    for (const [seq, tile] of this.tiles) {
      if (places.has(seq)) continue;
      tile.remove();
      this.tiles.delete(seq);
    }
    for (const [seq, parent] of places) {
      const tile = this.tiles.get(seq);
      if (tile && tile.parentNode !== parent && moved.length < MOST_MOVES && !calm.matches) moved.push([tile, tile.getBoundingClientRect()]);
    }
    const next = new Map();
    for (const [seq, parent] of places) {
      let tile = this.tiles.get(seq);
      if (!tile) {
        tile = h("span", { class: "tile" }, String(seq));
        this.tiles.set(seq, tile);
      }
      const before = next.has(parent) ? next.get(parent).nextSibling : parent.firstChild;
      if (tile.parentNode !== parent || tile !== before) parent.insertBefore(tile, before);
      next.set(parent, tile);
    }
    for (const [tile, from] of moved) {
      const to = tile.getBoundingClientRect();
      tile.animate([{ transform: `translate(${from.x - to.x}px, ${from.y - to.y}px)` }, { transform: "none" }], { duration: MOVE_MS, easing: "ease-out" });
    }
  }

  #words(now) {
    const { settings, stages } = this.playback;
    say(this.lanes.get("source").note, `${count(now.read)} of ${count(settings.items)} read`);
    const gate = this.lanes.get("gate");
    if (gate) {
      gate.root.classList.toggle("closed", now.held.length > 0);
      say(gate.note, now.held.length ? `holds ${count(now.held.length)}${now.awaited === null ? "" : `, awaits ${now.awaited}`}` : "nothing held");
    }
    const late = Playback.disordered(now.out);
    for (const seq of now.out) this.tiles.get(seq)?.classList.toggle("late", late.has(seq));
    const out = this.lanes.get("out");
    out.root.classList.toggle("wrong-order", late.size > 0);
    say(out.note, `${count(now.out.length)} out${late.size ? `, ${plural(late.size, "row")} too late` : now.out.length > 1 ? ", in order" : ""}`);
    for (const name of stages) {
      const waits = now.queues[name].length;
      const lane = this.lanes.get(name);
      const most = settings.unbounded ? null : settings.stages.find((stage) => stage.name === name)?.queue;
      say(lane.note, most ? `${count(waits)} of ${count(most)} queued` : `${count(waits)} queued`);
      lane.root.classList.toggle("full", Boolean(most) && waits >= most);
    }
    for (const [key, seqs] of [["dead", now.dead], ["left", now.left]]) {
      const lane = this.lanes.get(key);
      show(lane.root, seqs.length);
      say(lane.note, count(seqs.length));
    }
  }
}
