// The view "Why": what words find among runs, tasks and nodes, and what did not take place, by cause.

import { causeList, commonCauses, commonList } from "./cause-list.js";
import { byId, element, refill } from "./dom.js";
import { drawRuns, RUN_FIELDS } from "./lists.js";
import { listEntryOf } from "./model.js";
import { TROUBLE } from "./outcomes.js";
import { headlineOf, stateBadge } from "./parts.js";
import { addressOf, adjust, place } from "./place.js";
import { setCall, setHeading } from "./view-frame.js";

const DAY = 86_400_000;
const SPANS = { "24 h": 1, "7 d": 7, "30 d": 30 };
const OVER = "finished,failed,missed,unplaced,displaced,cancelled";
const AHEAD = "running,merging,held,scheduled,waiting,set-aside";
const LOST_MOST = 500;
const TASK_FIELDS = "id,headline,state";
const RUNS_SHOWN = 60;
const AHEAD_SHOWN = 10;
const LINKS_SHOWN = 24;
const NONE = { items: [], next: null };

export function open(box, { api, model, caller, tools }) {
  const spans = Object.keys(SPANS).map((words) => element("button", { type: "button", click: () => adjust({ span: words }) }, words));
  refill(tools, [element("div", { class: "spans", role: "group", "aria-label": "How far back" }, spans)]);
  return {
    events: ["ended"],
    gap: 15_000,
    async fetch() {
      const asked = askedOf(place());
      if (document.activeElement !== byId("search-field")) byId("search-field").value = asked.q;
      for (const each of spans) each.setAttribute("aria-pressed", String(each.textContent === asked.span));
      const found = await ask(api, caller(), asked, model.now());
      const now = askedOf(place());
      if (now.q !== asked.q || now.span !== asked.span || !box.isConnected) return;
      setHeading(asked.q ? `Why: ${asked.q}` : `Why: what had no result in ${asked.span}`);
      setCall(found.path);
      draw(box, found, asked, model);
    },
  };
}

/** @param {{ [name: string]: string }} fields of the address */
function askedOf({ q, span }) {
  const words = (q ?? "").trim();
  return { q: words, span: span in SPANS ? span : "24 h" };
}

// The node looks for the words among all runs of the span and all tasks; nodes, meshes and campaigns are few.
async function ask(api, caller, { q, span }, now) {
  const [from, to] = [now - SPANS[span] * DAY, now].map((instant) => new Date(instant).toISOString());
  const words = q ? `&q=${encodeURIComponent(q)}` : "";
  const path = `/v1/runs?state=${OVER}&from=${from}&to=${to}${words}&limit=${RUNS_SHOWN}&fields=${RUN_FIELDS}`;
  const lost = api.get(`/v1/runs?outcome=${TROUBLE}&from=${from}&to=${to}${words}&limit=${LOST_MOST}&fields=${RUN_FIELDS},followed_by`);
  if (!q) return { path, common: await commonCauses(api, caller), lost: await lost, runs: await api.get(path), ahead: NONE, tasks: NONE, named: [] };
  const quietly = (each) => api.get(each).then(({ items }) => items, () => []);
  const [runs, ahead, tasks, nodes, meshes, campaigns] = await Promise.all([
    api.get(path),
    api.get(`/v1/runs?state=${AHEAD}&from=${to}&order=asc${words}&limit=${AHEAD_SHOWN}&fields=${RUN_FIELDS}`),
    api.get(`/v1/tasks?limit=${LINKS_SHOWN}${words}&fields=${TASK_FIELDS}`),
    quietly("/v1/nodes"),
    quietly("/v1/meshes?limit=500"),
    quietly("/v1/campaigns?limit=500"),
  ]);
  const named = [
    ...nodes.map(({ name }) => ({ kind: "node", name, href: addressOf({ view: "nodes" }) })),
    ...meshes.map(({ name }) => ({ kind: "mesh", name, href: addressOf({ mesh: name }) })),
    ...campaigns.map(({ name }) => ({ kind: "campaign", name, href: addressOf({ view: "campaigns" }) })),
  ];
  const wanted = q.toLowerCase().split(/\s+/u);
  const has = ({ kind, name }) => wanted.every((word) => `${kind} ${name}`.toLowerCase().includes(word));
  return { path, common: [], lost: await lost, runs, ahead, tasks, named: named.filter(has) };
}

function draw(box, found, { q, span }, model) {
  const signature = JSON.stringify([q, span, found.common, found.lost, found.runs, found.ahead, found.tasks, found.named]);
  if (box.dataset.signature === signature) return;
  box.dataset.signature = signature;
  const { common, lost, runs, ahead, tasks, named } = found;
  const open = new Set([...box.querySelectorAll("details[open][data-key]")].map(({ dataset }) => dataset.key));
  const parts = [
    q && (named.length || tasks.items.length) ? section("Places", places(named, tasks)) : null,
    common.length ? section("Common to what fails now", commonList(common, model.now())) : null,
    section(`Without a result, or with a bad one, in ${span}, by cause`, causesOf(lost, open, model.now())),
    ahead.items.length ? section("Running and ahead, the next first", runList(ahead, q, model)) : null,
    section(`Runs of the last ${span}, newest first`, runList(runs, q, model)),
  ];
  box.replaceChildren(...parts.filter(Boolean));
}

function section(heading, content) {
  return element("section", { class: "found" }, heading && element("h3", {}, heading), content);
}

function places(named, { items, next }) {
  const links = [
    ...named.map(({ kind, name, href }) => element("li", {}, element("a", { href }, element("b", {}, name)), ` ${kind}`)),
    ...items.map((task) => element("li", {}, element("a", { href: addressOf({ task: task.id }) }, headlineOf(task)), " ", stateBadge(task.state))),
  ];
  const rest = next ? [element("li", { class: "reason" }, "and more tasks; another word finds fewer")] : [];
  return element("ul", { class: "places" }, links, rest);
}

function causesOf({ items, next }, open, now) {
  if (!items.length) return element("p", { class: "empty" }, "No run was without a result.");
  const list = causeList(items.map(listEntryOf), open, now);
  return next ? element("div", {}, list, element("p", { class: "hint" }, `These are the newest ${LOST_MOST} runs without a result; there are more.`)) : list;
}

function runList({ items, next }, q, model) {
  if (!items.length) return element("p", { class: "empty" }, q ? "No run has all of these words. A longer span may have one." : "No run.");
  const list = element("div", { class: "runs" });
  drawRuns(list, items.map(listEntryOf), model);
  return next ? element("div", {}, list, element("p", { class: "hint" }, `These are ${items.length}; another word finds fewer.`)) : list;
}
