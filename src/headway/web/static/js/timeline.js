// Spans by slot, as they were recorded: [from, to, state, first, last], seconds since the run began.

export class Timeline {
  constructor(keep = Infinity) {
    this.keep = keep;
    this.rows = [];
    this.from = 0;
    this.to = 0;
    this.byName = new Map();
  }

  /** The stages in their order, so that rows stand in the order of the pipeline and not of their arrival. */
  order(stages) {
    this.places = new Map(stages.map((name, i) => [name, i]));
    this.rows.sort((a, b) => this.#place(a) - this.#place(b));
  }

  #place(row) { return (this.places?.get(row.stage) ?? 999) * 10_000 + row.slot; }

  #row(stage, slot) {
    const key = JSON.stringify([stage, slot]);
    let row = this.byName.get(key);
    if (!row) {
      row = { stage, slot, spans: [] };
      this.byName.set(key, row);
      this.rows.push(row);
      this.rows.sort((a, b) => this.#place(a) - this.#place(b));
    }
    return row;
  }

  /** Take an event. A span that goes on from the last one is joined to it; what is known already (a replay) is left out. */
  add({ from, to, slots }) {
    for (const { stage, slot, spans } of slots) {
      const row = this.#row(stage, slot);
      for (const span of spans) {
        const last = row.spans.at(-1);
        if (last && span[0] < last[0]) continue;
        if (last && span[0] === last[0]) { row.spans[row.spans.length - 1] = [...span]; continue; }
        if (last && span[0] - last[1] < 1e-6 && last[2] === span[2] && last[3] === span[3] && last[4] === span[4]) last[1] = Math.max(last[1], span[1]);
        else row.spans.push([...span]);
      }
    }
    this.to = Math.max(this.to, to);
    this.#forget(this.to - this.keep);
  }

  #forget(before) {
    if (!Number.isFinite(before) || before <= this.from) return;
    this.from = before;
    for (const row of this.rows) {
      const gone = after(row.spans, before);
      if (gone > 64) row.spans.splice(0, gone);
    }
    this.rows = this.rows.filter((row) => row.spans.length && row.spans.at(-1)[1] >= before);
    this.byName = new Map(this.rows.map((row) => [JSON.stringify([row.stage, row.slot]), row]));
  }

  /** The spans of `row` that touch [a, b], as a pair of indices. */
  static visible(row, a, b) {
    const first = after(row.spans, a);
    let end = first;
    while (end < row.spans.length && row.spans[end][0] <= b) end += 1;
    return [first, end];
  }

  /** The span of `row` at `t`, or the nearest within `slack` seconds. */
  static at(row, t, slack = 0) {
    const i = after(row.spans, t - slack);
    const span = row.spans[i];
    return span && span[0] <= t + slack ? span : null;
  }

  /** The calls of item `seq`, in order of time, as recorded here, and its waits between them. */
  life(seq) {
    const steps = [];
    for (const { stage, slot, spans } of this.rows) {
      for (const [from, to, state, first, last] of spans) {
        if (first !== null && first !== undefined && first <= seq && seq <= (last ?? first)) steps.push({ stage, slot, state, from, to });
      }
    }
    steps.sort((a, b) => a.from - b.from || a.to - b.to);
    return steps.flatMap((step, i) => {
      const before = steps[i - 1]?.to ?? step.from;
      return step.from > before ? [{ stage: step.stage, slot: null, state: "waits", from: before, to: step.from }, step] : [step];
    });
  }
}

/** Index of the first span that ends after `t`. */
function after(spans, t) {
  let low = 0;
  let high = spans.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (spans[mid][1] < t) low = mid + 1; else high = mid;
  }
  return low;
}
