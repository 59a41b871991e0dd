// One run as the page knows it: its last snapshot, a history for the charts, the timeline, the dead letters.

import { Timeline } from "./timeline.js";

const KEEP_SECONDS = 120;
const RATE_SECONDS = 5;
const MOST_DEAD = 500;

export class Model {
  /** `{run, plan, snapshot, sentence, limits}` as the server gives it; snapshot and plan may be null (a trace). */
  constructor({ run, plan, snapshot, sentence, limits }) {
    this.run = run;
    this.plan = plan;
    this.sentence = sentence ?? "";
    this.limits = limits ?? { controls: false };
    this.history = [];
    this.timeline = new Timeline(run.live ? KEEP_SECONDS : Infinity);
    this.dead = [];
    this.known = new Set();
    this.memory = null;
    this.t = 0;
    this.#take(snapshot);
  }

  get state() { return this.snapshot && this.run.live ? this.run.state : this.run.state ?? this.snapshot?.state; }

  get ended() { return !["running", "draining"].includes(this.run.state); }

  /** Whether the server can still be asked about it: the page of a live run ends with the run. */
  get reachable() { return !this.local && !(this.ended && this.run.source === "live"); }

  #take(snapshot) {
    if (!snapshot) return;
    this.snapshot = snapshot;
    this.timeline.order(snapshot.stages.map((stage) => stage.name));
    for (const failure of snapshot.failures ?? []) this.onDead(failure);
  }

  onSnapshot({ t, snapshot, sentence, memory_bytes: memory }) {
    this.#take(snapshot);
    this.sentence = sentence ?? this.sentence;
    this.memory = memory || null;
    this.t = t;
    const last = this.history.at(-1);
    if (last && t <= last.t) return; // told again after a dropped connection
    this.history.push(this.#point(t, snapshot, memory));
    while (this.history[0].t < t - KEEP_SECONDS) this.history.shift();
  }

  #point(t, snapshot, memory) {
    const settled = finished(snapshot.items);
    let back = this.history.length - 1;
    while (back > 0 && this.history[back].t > t - RATE_SECONDS) back -= 1;
    const before = this.history[back] ?? { t: 0, settled: 0 };
    return {
      t, settled, memory: memory || null,
      rate: t > before.t ? Math.max(0, settled - before.settled) / (t - before.t) : null,
      ceiling: snapshot.bottleneck?.ceiling ?? null,
      latency: snapshot.latency ?? {},
      queues: Object.fromEntries((snapshot.queues ?? []).map((q) => [q.into, { depth: depth(q), age: q.age }])),
      held: (snapshot.reorder ?? []).reduce((sum, gate) => sum + gate.held, 0),
    };
  }

  onTimeline(event) { this.timeline.add(event); }

  onDead(letter) {
    const key = JSON.stringify([letter.seq, letter.stage, letter.error]);
    if (this.known.has(key)) return;
    this.known.add(key);
    this.dead.unshift(letter);
    if (this.dead.length > MOST_DEAD) this.dead.pop();
  }

  onEnd({ state, snapshot }) {
    this.#take(snapshot);
    this.run = { ...this.run, state: ENDED[state] ?? state, live: false };
  }

  /** The rate of root rows now: what was settled in the last seconds, or the whole run's where it has ended. */
  get rate() {
    if (this.ended || !this.history.length) return this.snapshot?.steady?.rate || this.snapshot?.rate || null;
    return this.history.at(-1).rate;
  }
}

const ENDED = { drained: "done" };

/** Items that a queue holds now. */
export const depth = (queue) => queue.now ?? queue.depth;

/** Root items with a fate: what a rate counts, wherever a flat_map made more or fewer of them. */
const finished = (items) => items.written + items.filtered + items.dead + items.expanded - items.children;
