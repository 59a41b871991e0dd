// The frame: which view is shown, which run is picked, how the connection is.

import { get } from "./api.js";
import { h, say, show } from "./dom.js";
import { opened } from "./files.js";
import { openLocal, openRun } from "./runview.js";
import { openVisualizer } from "./visualizer.js";

const LOOK_MS = 3000;
const view = document.getElementById("view");
const runs = document.getElementById("runs");
const picker = document.getElementById("picker");
const file = document.getElementById("file");
let current = null;
let known = "";
let turn = 0;

function link(state, text) {
  const el = document.getElementById("link");
  el.dataset.state = state;
  say(el, text);
}

function leave() {
  current?.close?.();
  current = null;
  turn += 1;
  clearInterval(leave.timer);
  link("", "");
  document.title = "Headway";
  view.replaceChildren(h("p", { class: "quiet" }, "Loading…"));
  return turn;
}

function blank(title, ...lines) {
  view.replaceChildren(h("section", { class: "blank" }, h("h1", {}, title), lines.map((line) => h("p", {}, line))));
}

const entry = (run) => `${run.name} · ${run.source === "live" ? run.state : run.source}`;

async function list() {
  const found = (await get("/api/runs")).runs;
  const told = JSON.stringify(found);
  if (told !== known) {
    known = told;
    runs.replaceChildren(...found.map((run) => h("option", { value: run.id }, entry(run))));
  }
  show(picker, found.length > 1);
  return found;
}

async function route() {
  const mine = leave();
  const [, path = "", id] = location.hash.split("/");
  for (const a of document.querySelectorAll(".views a")) {
    if ((a.dataset.view === "try") === (path === "try")) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  try {
    if (path === "try") {
      show(picker, false);
      const made = await openVisualizer(view);
      if (mine === turn) current = made; else made.close();
      return;
    }
    const found = await list();
    if (mine !== turn) return;
    const wanted = id ? decodeURIComponent(id) : (found.find((run) => run.live) ?? found[0])?.id;
    if (!wanted) { wait(mine); return; }
    runs.value = wanted;
    const made = await openRun(wanted, view, link, (run) => say([...runs.options].find((option) => option.value === wanted), entry(run)));
    if (mine === turn) current = made; else made.close();
  } catch (error) {
    if (mine === turn) failed(error);
  }
}

/** Nothing runs: say how to start something, and look again. */
function wait(mine) {
  view.replaceChildren(h("section", { class: "blank" },
    h("h1", {}, "No run yet"),
    h("p", {}, "Start one with ", h("code", {}, "headway import rows.csv --to bank.duckdb --ui"), " or ", h("code", {}, "pipeline.run(ui=True)"), ". It appears here by itself."),
    h("p", {}, "Or ", h("a", { href: "#/try" }, "watch how a pipeline moves"), " in the visualizer, which needs no run, or open a report or a trace.")));
  leave.timer = setInterval(async () => {
    const found = await list().catch(() => []);
    if (mine === turn && found.length) route();
  }, LOOK_MS);
}

function failed(error) {
  const again = h("button", { type: "button", class: "main", on: { click: route } }, "Try again");
  const title = error.status === 401 || error.status === 403 ? "This address needs its token" : error.status === 404 ? "That run is not here any more" : "The run cannot be shown";
  view.replaceChildren(h("section", { class: "blank", role: "alert" }, h("h1", {}, title), h("p", {}, error.message), again));
}

async function take(picked) {
  if (!picked) return;
  leave();
  try {
    current = openLocal(opened(picked.name, await picked.text()), view, link);
  } catch (error) {
    blank("That file cannot be shown", error.message);
  }
  view.focus();
}

runs.addEventListener("change", () => { location.hash = `#/run/${encodeURIComponent(runs.value)}`; });
document.getElementById("open").addEventListener("click", () => file.click());
file.addEventListener("change", () => { take(file.files[0]); file.value = ""; });
document.addEventListener("dragover", (e) => e.preventDefault());
document.addEventListener("drop", (e) => { e.preventDefault(); take(e.dataTransfer.files[0]); });
window.addEventListener("hashchange", route);
window.addEventListener("pagehide", () => current?.close?.());
document.querySelector(".skip").addEventListener("click", (e) => { e.preventDefault(); view.focus(); });
route();
