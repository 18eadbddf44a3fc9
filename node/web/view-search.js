// The view "Why": what a word finds among runs, tasks and nodes, and what did not take place, by cause.

import { causeList } from "./cause-list.js";
import { byId, element } from "./dom.js";
import { drawRuns, RUN_FIELDS } from "./lists.js";
import { listEntryOf } from "./model.js";
import { headlineOf, stateBadge } from "./parts.js";
import { addressOf, place } from "./place.js";
import { setCall, setHeading } from "./views.js";
import { stateOf } from "./words.js";

const DAY = 86_400_000;
const ID = /^[0-9a-f-]{4,36}$/u;
const LOST = "failed,missed,unplaced,displaced,cancelled";
const TASK_FIELDS = "id,headline,state,reason,waiting,campaign,reference,requester,pool";
const RUNS_SHOWN = 60;
const LINKS_SHOWN = 24;

export function open(box, { api, model }) {
  return {
    events: ["ended"],
    gap: 15_000,
    async fetch() {
      const q = (place().q ?? "").trim();
      if (document.activeElement !== byId("search-field")) byId("search-field").value = q;
      const asked = await ask(api, q, model.now());
      if ((place().q ?? "").trim() !== q || !box.isConnected) return;
      setHeading(q ? `Why: ${q}` : "Why: what had no result in 24 h");
      setCall(asked.path);
      draw(box, find(asked, q), q, model);
    },
  };
}

async function ask(api, q, now) {
  const since = new Date(now - (q ? 7 : 1) * DAY).toISOString();
  const path = `/v1/runs?state=${LOST}&from=${since}&to=${new Date(now).toISOString()}&limit=500&fields=${RUN_FIELDS}`;
  const lost = api.get(path);
  const items = (each) => api.get(each).then((page) => page.items);
  if (!q) {
    const runs = await items(`/v1/runs?limit=60&to=${new Date(now).toISOString()}&fields=${RUN_FIELDS}`);
    return { path, lost: (await lost).items, runs, tasks: [], named: [] };
  }
  const quietly = (each) => items(each).catch(() => []);
  const byId = ID.test(q);
  const [runs, host, prefixed, tasks, tasksPrefixed, nodes, meshes, campaigns] = await Promise.all([
    items(`/v1/runs?limit=500&to=${new Date(now + DAY).toISOString()}&fields=${RUN_FIELDS}`),
    quietly(`/v1/runs?limit=200&participant=${encodeURIComponent(q)}&fields=${RUN_FIELDS}`),
    byId ? quietly(`/v1/runs?limit=50&prefix=${q}&fields=${RUN_FIELDS}`) : [],
    items(`/v1/tasks?limit=500&fields=${TASK_FIELDS}`),
    byId ? quietly(`/v1/tasks?limit=50&prefix=${q}&fields=${TASK_FIELDS}`) : [],
    items("/v1/nodes"),
    quietly("/v1/meshes?limit=100"),
    quietly("/v1/campaigns?limit=200"),
  ]);
  const named = [
    ...nodes.map(({ name }) => ({ kind: "node", name, href: addressOf({ view: "nodes", node: name }) })),
    ...meshes.map(({ name }) => ({ kind: "mesh", name, href: addressOf({ mesh: name }) })),
    ...campaigns.map(({ name }) => ({ kind: "campaign", name, href: addressOf({ view: "campaigns" }) })),
  ];
  return { path, lost: (await lost).items, runs: [...runs, ...host, ...prefixed], tasks: [...tasks, ...tasksPrefixed], named };
}

/** Returns what has all words of the query. */
function find({ lost, runs, tasks, named }, q) {
  const words = q.toLowerCase().split(/\s+/u).filter(Boolean);
  const has = (...texts) => {
    const text = texts.filter(Boolean).join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  };
  const runHas = (run) => has(run.id, run.task, run.headline, run.state, stateOf(run.state).word, run.reason, run.summary, run.verdict, run.scheduling_class, ...run.participants);
  const unique = (items) => [...new Map(items.map((item) => [item.id, item])).values()];
  return {
    lost: unique(lost).filter(runHas).map(listEntryOf),
    runs: unique(runs).filter(runHas).map(listEntryOf).sort((one, other) => other.starts - one.starts),
    tasks: unique(tasks).filter((task) => has(task.id, task.headline, task.state, task.reason, task.waiting, task.campaign, task.requester, task.reference && JSON.stringify(task.reference))),
    named: named.filter(({ kind, name }) => has(kind, name)),
  };
}

function draw(box, found, q, model) {
  const signature = JSON.stringify([q, found]);
  if (box.dataset.signature === signature) return;
  box.dataset.signature = signature;
  const { lost, runs, tasks, named } = found;
  const open = new Set([...box.querySelectorAll("details[open][data-key]")].map(({ dataset }) => dataset.key));
  const parts = [
    q && (named.length || tasks.length) ? section("Places", places(named, tasks)) : null,
    section(q ? "Without a result in 7 d, by cause" : "By cause", causesOf(lost, open, model.now())),
    section("Runs, newest first", runList(runs, model)),
  ];
  box.replaceChildren(...parts.filter(Boolean));
}

function section(heading, content) {
  return element("section", { class: "found" }, heading && element("h3", {}, heading), content);
}

function places(named, tasks) {
  const links = [
    ...named.map(({ kind, name, href }) => element("li", {}, element("a", { href }, element("b", {}, name)), ` ${kind}`)),
    ...tasks.map((task) => element("li", {}, element("a", { href: addressOf({ task: task.id }) }, headlineOf(task)), " ", stateBadge(task.state))),
  ];
  const left = links.length - LINKS_SHOWN;
  const rest = left > 0 ? [element("li", { class: "reason" }, `and ${left} more`)] : [];
  return element("ul", { class: "places" }, links.slice(0, LINKS_SHOWN), rest);
}

function causesOf(lost, open, now) {
  return lost.length ? causeList(lost, open, now) : element("p", { class: "empty" }, "Every run had its result.");
}

function runList(runs, model) {
  const list = element("div", { class: "runs" });
  drawRuns(list, runs.slice(0, RUNS_SHOWN), model);
  const left = runs.length - RUNS_SHOWN;
  return left > 0 ? element("div", {}, list, element("p", { class: "hint" }, `${left} more; another word finds fewer.`)) : list;
}
