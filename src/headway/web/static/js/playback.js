// Where every item is at a moment of a simulated run. It only reads what the engine did; it decides nothing itself.

export class Playback {
  /** `result` as POST /api/simulate gives it. */
  constructor(result, settings) {
    this.result = result;
    this.settings = settings;
    this.stages = settings.stages.map((stage) => stage.name);
    this.end = Math.max(result.timeline.to, result.report.elapsed);
    this.gateAt = (result.report.reorder ?? [])[0]?.before ?? null;
    this.out = [...result.out].sort((a, b) => a[0] - b[0]);
    this.outAt = new Map(this.out.map(([t, seq]) => [seq, t]));
    this.dead = new Set([...result.dead, ...result.report.failures.map((failure) => failure.seq)]);
    this.items = this.#calls(result.timeline.slots);
    this.depths = new Map(this.stages.map((name) => [name, result.queues.filter((q) => q[1] === name)]));
    this.moments = this.#moments();
    this.low = { t: 0, first: 0 };
  }

  /** All items that were read, in order of their first call: `{seq, calls: [{stage, slot, from, to}]}`. */
  #calls(slots) {
    const found = new Map();
    this.slots = slots.map(({ stage, slot, spans }) => ({ stage, slot, spans }));
    for (const { stage, slot, spans } of slots) {
      for (const [from, to, state, first, last] of spans) {
        if (state !== "busy" || first === null || first === undefined) continue;
        for (let seq = first; seq <= (last ?? first); seq += 1) {
          if (!found.has(seq)) found.set(seq, { seq, calls: [] });
          found.get(seq).calls.push({ stage, slot, from, to });
        }
      }
    }
    for (let seq = 0; seq < this.result.report.items.read; seq += 1) if (!found.has(seq)) found.set(seq, { seq, calls: [] });
    const items = [...found.values()];
    for (const item of items) {
      item.calls.sort((a, b) => a.from - b.from);
      item.from = item.calls[0]?.from ?? Infinity;
      item.to = Math.max(this.outAt.get(item.seq) ?? Infinity, item.calls.at(-1)?.to ?? Infinity);
    }
    return items.sort((a, b) => (a.from === b.from ? a.seq - b.seq : a.from - b.from));
  }

  #moments() {
    const all = new Set([0]);
    for (const { calls } of this.items) for (const { from, to } of calls) all.add(from).add(to);
    for (const [t] of this.out) all.add(t);
    return [...all].sort((a, b) => a - b);
  }

  /** The moment after `t`, or the one before (`way` -1). */
  step(t, way) {
    const i = way > 0 ? this.moments.findIndex((m) => m > t + 1e-9) : this.moments.findLastIndex((m) => m < t - 1e-9);
    return i < 0 ? (way > 0 ? this.end : 0) : this.moments[i];
  }

  depth(stage, t) { return value(this.depths.get(stage), t)?.[2] ?? 0; }

  gate(t) { return value(this.result.gate, t) ?? [t, 0, null]; }

  state(stage, slot, t) {
    const row = this.slots.find((one) => one.stage === stage && one.slot === slot);
    return row?.spans.find(([from, to]) => from <= t && t < to)?.[2] ?? null;
  }

  /** `{queues: {stage: [seq]}, calls: [{stage, slot, seq, share}], held: [seq], awaited, out: [seq], dead: [seq], left: [seq], read}` at `t`. */
  at(t) {
    const seen = { queues: Object.fromEntries(this.stages.map((name) => [name, []])), calls: [], held: [], out: [], dead: [], left: [], read: 0 };
    const [, , awaited] = this.gate(t);
    seen.awaited = awaited;
    if (t < this.low.t) this.low = { t: 0, first: 0 };
    while (this.low.first < this.items.length && this.items[this.low.first].to <= t) this.low.first += 1;
    this.low.t = t;
    let i = this.low.first;
    const over = t >= this.end;
    for (; i < this.items.length && (over || this.items[i].from <= t); i += 1) this.#place(this.items[i], t, seen, awaited, over);
    const waits = over ? 0 : this.depth(this.stages[0], t);
    for (const item of this.items.slice(i, i + waits)) seen.queues[this.stages[0]].push(item.seq);
    seen.read = i + waits;
    seen.out = this.out.slice(0, upTo(this.out, t)).map(([, seq]) => seq);
    if (this.dead.size) seen.dead = this.items.filter(({ seq, calls }) => this.dead.has(seq) && (over || calls.at(-1)?.to <= t)).map(({ seq }) => seq);
    return seen;
  }

  #place({ seq, calls, to }, t, seen, awaited, over) {
    if (to <= t) return;
    const next = calls.find((call) => call.to > t);
    if (next && next.from <= t) {
      seen.calls.push({ stage: next.stage, slot: next.slot, seq, share: (t - next.from) / Math.max(1e-12, next.to - next.from) });
    } else if (next) {
      if (next.stage === this.gateAt && awaited !== null && seq > awaited) seen.held.push(seq);
      else seen.queues[next.stage].push(seq);
    } else if (this.outAt.has(seq)) {
      if (this.outAt.get(seq) > t) seen.held.push(seq);
    } else if (this.dead.has(seq)) {
      return;
    } else if (over) {
      seen.left.push(seq);
    } else { // on its way into a call that the stop cut short
      const after = this.stages[this.stages.indexOf(calls.at(-1).stage) + 1];
      (seen.queues[after] ?? seen.held).push(seq);
    }
  }

  /** Those of `out` that came before an item with a lower number: silently out of order. */
  static disordered(out) {
    const late = new Set();
    let most = -1;
    for (const seq of out) {
      if (seq < most) late.add(seq);
      most = Math.max(most, seq);
    }
    return late;
  }
}

/** The last entry of a series of [t, …] at or before `t`. */
function value(series, t) {
  const i = upTo(series ?? [], t);
  return i ? series[i - 1] : null;
}

/** How many entries of a series of [t, …] are at or before `t`. */
function upTo(series, t) {
  let low = 0;
  let high = series.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (series[mid][0] <= t + 1e-12) low = mid + 1; else high = mid;
  }
  return low;
}
