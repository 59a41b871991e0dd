// The pipeline as a picture: stages with their state bars, queues that fill, gates, the window.

import { h, legend, say, show, width } from "./dom.js";
import { bytes, count, item, percent, plural, rate, seconds } from "./format.js";
import { depth } from "./model.js";

const OTHER = [["lane_wait", "waits for its key"], ["throttled", "held to its rate"], ["paused", "paused"]];
const SHOWN = ["busy", "blocked", "starved", "overhead"];

export class Picture {
  constructor() {
    this.flow = h("ol", { class: "flow" });
    this.window = h("p", { class: "window", hidden: true }, h("span", { class: "tube wide" }, h("span", { class: "fill" })), h("span", { class: "small" }));
    this.verdict = h("p", { class: "verdict" });
    this.element = h("section", { class: "panel picture", "aria-labelledby": "picture-title" },
      h("header", {}, h("h2", { id: "picture-title" }, "Where"), legend()),
      this.flow, this.window, this.verdict);
    this.shape = "";
  }

  update({ snapshot, plan, sentence: told = "" }) {
    if (!snapshot) return;
    const names = snapshot.stages.map((stage) => stage.name);
    const gates = (snapshot.reorder ?? []).map((gate) => gate.before);
    const shape = JSON.stringify([names, gates]);
    if (shape !== this.shape) { this.shape = shape; this.#build(snapshot, plan, gates); }
    if (this.flow.scrollWidth > this.flow.clientWidth + 4) this.flow.tabIndex = 0; // to be scrolled by keyboard
    else this.flow.removeAttribute("tabindex");
    this.#source(snapshot);
    for (const stage of snapshot.stages) this.#stage(this.stages.get(stage.name), stage, snapshot.bottleneck);
    const over = snapshot.state !== "running" && snapshot.state !== "draining";
    for (const queue of snapshot.queues ?? []) this.#queue(this.queues.get(queue.into), queue, over);
    for (const gate of snapshot.reorder ?? []) this.#gate(this.gates.get(gate.before), gate, !over);
    this.#window(snapshot, over);
    const { because, todo } = snapshot.bottleneck ?? {};
    const said = told.includes(because);
    say(this.verdict, [said ? null : because, todo && `Next: ${todo}`].filter(Boolean).map(sentence).join(" "));
  }

  #build(snapshot, plan, gates) {
    this.stages = new Map(); this.queues = new Map(); this.gates = new Map();
    const edges = new Map((plan?.edges ?? []).map((edge) => [edge.to, edge]));
    this.origin = parts(h("li", { class: "node source", "aria-label": "source" }, h("h3", {}, "source"),
      h("p", { class: "small quiet", data: { part: "read" } }), h("p", { class: "small quiet", data: { part: "why" } })));
    const list = [this.origin.root];
    for (const stage of snapshot.stages) {
      list.push(this.#link(stage.name, gates.includes(stage.name), edges.get(stage.name)), this.#card(stage));
    }
    for (const name of gates.filter((gate) => !this.gates.has(gate))) list.push(this.#link(name, true, edges.get(name)));
    this.flow.replaceChildren(...list);
  }

  #link(name, gated, edge) {
    const link = parts(h("li", { class: "join", "aria-label": `queue in front of ${name}` },
      h("div", { class: "queue" },
        h("span", { class: "tube", "aria-hidden": "true" }, h("span", { class: "fill", data: { part: "fill" } })),
        h("span", { class: "small", data: { part: "depth" } }), h("span", { class: "small quiet", data: { part: "age" } }))));
    this.queues.set(name, link);
    if (gated) {
      const gate = parts(h("div", { class: "gate", title: edge?.why ?? "" },
        h("span", { class: "lock", "aria-hidden": "true" }),
        h("span", { class: "small", data: { part: "holds" } }), h("span", { class: "small quiet", data: { part: "awaits" } })));
      this.gates.set(name, gate);
      link.root.prepend(gate.root);
    }
    return link.root;
  }

  #card(stage) {
    const bar = h("div", { class: "bar", role: "img" }, SHOWN.map((state) => h("span", { class: `state state-${state}` })));
    const card = parts(h("li", { class: "node stage", "aria-label": `stage ${stage.name}` },
      h("h3", {}, stage.name), h("p", { class: "mark", data: { part: "mark" }, hidden: true }),
      h("p", { class: "small", data: { part: "workers" } }), bar,
      h("p", { class: "small", data: { part: "shares" } }),
      h("p", { class: "small quiet", data: { part: "call" } }),
      h("p", { class: "small quiet", data: { part: "most" } }),
      h("p", { class: "small", data: { part: "bad" }, hidden: true })));
    card.bar = bar;
    this.stages.set(stage.name, card);
    return card.root;
  }

  #source(snapshot) {
    say(this.origin.read, `${count(snapshot.items.read)} read`);
    const { reading, blocked, window_wait: waits } = snapshot.source ?? {};
    const most = [[reading, "reading"], [blocked, "waits for room"], [waits, "waits for the window"]].filter(([x]) => x > 0.005).sort((a, b) => b[0] - a[0])[0];
    say(this.origin.why, most ? `${percent(most[0])} ${most[1]}` : "");
  }

  #stage(card, stage, neck) {
    const marked = neck?.stage === stage.name;
    card.root.classList.toggle("neck", marked);
    show(card.mark, marked);
    say(card.mark, marked ? `${neck.confirmed ? "bottleneck" : "slowest, not confirmed"}` : "");
    say(card.workers, `${stage.workers} × ${stage.on}`);
    SHOWN.forEach((state, i) => width(card.bar.children[i], stage[state]));
    const shares = SHOWN.filter((state) => stage[state] >= 0.005).map((state) => `${state} ${percent(stage[state])}`);
    const other = OTHER.filter(([key]) => stage[key] >= 0.005).map(([key, text]) => `${text} ${percent(stage[key])}`);
    card.bar.setAttribute("aria-label", [...shares, ...other].join(", ") || "no time yet");
    say(card.shares, [...shares.slice(0, 2), ...other].join(" · ") || "no call yet");
    say(card.call, `${seconds(stage.service?.mean)} a call · p99 ${seconds(stage.service?.p99)}`);
    say(card.most, stage.capacity ? `at most ${rate(stage.capacity)}` : `${count(stage.out)} out`);
    const bad = [[stage.failed, "failed"], [stage.retries, "retried"], [stage.timeouts, "timed out"], [stage.restarts, "restarted"], [stage.zombies, "stuck"]]
      .filter(([n]) => n > 0).map(([n, text]) => `${count(n)} ${text}`);
    show(card.bad, bad.length);
    say(card.bad, bad.join(" · "));
  }

  /** What is in a queue; of a run that is over what was in it on average. */
  #queue(link, queue, over) {
    if (!link) return;
    const now = over ? queue.depth : depth(queue);
    const share = queue.capacity ? now / queue.capacity : 0;
    width(link.fill, share);
    link.fill.classList.toggle("full", share >= 0.95);
    say(link.depth, `${over ? "mean " : ""}${over && now < 10 ? now.toFixed(1) : count(now)}${queue.capacity ? ` of ${count(queue.capacity)}` : " queued"}`);
    link.root.title = `mean ${count(queue.depth)}, most ${count(queue.max_depth)}, ${bytes(queue.bytes)}`;
    say(link.age, over ? `at most ${count(queue.max_depth)}` : queue.age > 0 ? `${seconds(queue.age)} old` : "");
  }

  #gate(gate, { held, awaiting, awaiting_age: age, awaiting_where: where, peak_held: peak }, running) {
    if (!gate) return;
    gate.root.classList.toggle("closed", held > 0);
    say(gate.holds, running || held ? `holds ${count(held)}` : `held at most ${count(peak)}`);
    say(gate.awaits, awaiting === null || awaiting === undefined ? "" : `awaits ${item(awaiting)} for ${seconds(age)}${where ? `, in ${where.replace(/, attempt 1$/, "")}` : ""}`);
  }

  #window(snapshot, over) {
    const gate = (snapshot.reorder ?? []).find((one) => one.window);
    const size = gate?.window ?? snapshot.model?.window;
    show(this.window, size);
    if (!size) return;
    const used = gate?.window_used ?? 0;
    width(this.window.querySelector(".fill"), used / size);
    show(this.window.firstChild, !over);
    say(this.window.lastChild, over ? `window of ${plural(size, "row")} between source and sink` : `window: ${count(used)} of ${plural(size, "row")} between source and sink`);
  }
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

/** An element and its named parts. */
function parts(root) {
  const found = { root };
  for (const el of root.querySelectorAll("[data-part]")) found[el.dataset.part] = el;
  return found;
}
