// Opens a report (`report.to_json`, `--json`) or a trace (`trace=`) from the reader's disk; nothing is sent anywhere.

import { count, plural, rate, seconds } from "./format.js";

/** What `text` holds, as `{run, plan, snapshot, sentence, timeline}`. Throws an Error that says what to do. */
export function opened(name, text) {
  const data = parsed(name, text);
  if (Array.isArray(data)) return trace(name, data);
  const report = data?.report?.stages ? data.report : data;
  if (!Array.isArray(report?.stages) || !report.items) {
    throw new Error(`${name} is neither a report nor a trace. Save a report with report.to_json(path), a trace with run(trace=path).`);
  }
  const state = report.state === "drained" ? "done" : report.state;
  return { run: { id: "", name: report.name, state, live: false, source: "report" }, plan: null, snapshot: report, sentence: sentence(report) };
}

function parsed(name, text) {
  const trimmed = text.trim();
  try {
    return JSON.parse(trimmed);
  } catch {
    try { // a trace of a run that was killed has no end
      if (trimmed.startsWith("[")) return JSON.parse(`${trimmed.replace(/,\s*$/, "")}]`);
    } catch { /* told below */ }
    throw new Error(`${name} is not JSON. The page opens reports (report.to_json) and traces (trace=).`);
  }
}

function sentence(report) {
  const ceiling = report.bottleneck?.ceiling;
  const next = report.what_if?.[0];
  const parts = [`${rate(report.steady?.rate || report.rate)}${ceiling ? ` of a possible ${rate(ceiling, "")}` : ""}`];
  if (report.bottleneck?.confirmed) parts.push(`${report.bottleneck.stage} sets the pace`);
  if (next) parts.push(`${next.change} would give ${rate(next.rate, "")}, then ${next.next_bottleneck}`);
  return parts.join("; ");
}

/** A trace in Chrome's trace event format, as Headway writes it. */
function trace(name, events) {
  const calls = events.filter((e) => e?.ph === "X" && e.args?.items);
  if (!calls.length) throw new Error(`${name} holds no calls of a run. Record one with run(trace=path).`);
  const meta = events.find((e) => e.ph === "M" && e.name === "process_name");
  const slots = new Map();
  let to = 0;
  for (const e of calls) {
    const key = JSON.stringify([e.name, e.args.slot]);
    if (!slots.has(key)) slots.set(key, { stage: e.name, slot: e.args.slot, spans: [] });
    const rows = e.args.items.filter(Array.isArray);
    const children = e.args.items.filter((part) => !Array.isArray(part)).map((part) => part.child[0]);
    const all = [...rows.flat(), ...children];
    const from = e.ts / 1e6;
    const end = (e.ts + e.dur) / 1e6;
    slots.get(key).spans.push([from, end, "busy", Math.min(...all), Math.max(...all)]);
    to = Math.max(to, end);
  }
  for (const slot of slots.values()) slot.spans.sort((a, b) => a[0] - b[0]);
  const stages = [...new Set(calls.map((e) => e.name))];
  const failed = calls.reduce((sum, e) => sum + (e.args.failed?.length ?? 0), 0);
  const run = { id: "", name: meta?.args?.name ?? name, state: "done", live: false, source: "trace" };
  const told = `${plural(calls.length, "call")} of ${plural(stages.length, "stage")} in ${seconds(to)}${failed ? `; ${count(failed)} rows failed` : ""}`;
  return { run, plan: null, snapshot: null, sentence: told, stages, timeline: { from: 0, to, slots: [...slots.values()] } };
}
