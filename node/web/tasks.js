// The list of tasks: what they measure, when, their latest result, and the counts of their runs.

import { element, refill } from "./dom.js";
import { drawTable } from "./lists.js";
import { BAD_RESULTS, lookOf, LOOKS, TROUBLE } from "./outcomes.js";
import { doubt, headlineOf, outcomeBadge, stateBadge, ticking, timeElement } from "./parts.js";
import { addressOf, hrefOf } from "./place.js";
import { dateOf, readable, scheduleWords, stateOf } from "./words.js";

const PAGE = 50;

/** The columns; those with a name of a sort of the API order the list. */
const COLUMNS = [
  { title: "State", sort: "state" },
  { title: "Task", sort: "name" },
  { title: "Outcome" },
  { title: "Last value" },
  { title: "Mesh", sort: "mesh" },
  { title: "Schedule" },
  { title: "Next run", sort: "next" },
  { title: "Runs so far" },
  { title: "" },
];

/** The states by which the list is filtered, each with its words. */
export const STATES = { "": "in any state", "active,paused": "that go on", refused: "that were refused", "finished,cancelled,unplaced": "that have ended" };

/** The outcomes by which the list is filtered, each with its words. */
export const OUTCOMES = { "": "with any outcome", [TROUBLE]: "that go wrong", stale: "that are stale", unknown: "of which nothing is known", "good,fair": "that are good or fair" };

const FIELDS = [
  ...["id", "headline", "state", "reason", "waiting", "revision", "paused_at", "schedule", "after", "lead", "led_here"],
  ...["campaign", "created_at", "next_run_at", "planned", "runs", "judgements", "latest", "outcome", "pool", "seats", "parent", "requester", "test", "reference"],
].join();

/**
 * Returns what the address asks of the list.
 * @param {{ [name: string]: string }} fields
 */
export function askedOf({ q, state, outcome, sort, order, after, page }) {
  const known = sort && COLUMNS.some((column) => column.sort === sort);
  return { q: (q ?? "").trim(), state: state && state in STATES ? state : "", outcome: outcome && outcome in OUTCOMES ? outcome : "", sort: known ? sort : "state", order: order === "desc" ? "desc" : "asc", after: after ?? "", page: Math.max(1, Number(page) || 1) };
}

/** Returns the query for a page of the tasks. */
export function tasksPath({ q, state, outcome, sort, order, after }) {
  const given = Object.entries({ q, state, outcome, sort, order, cursor: after }).filter(([, value]) => value);
  return `/v1/tasks?${new URLSearchParams(given)}&limit=${PAGE}&fields=${FIELDS}`;
}

/** Returns the query for the newest tasks of the seats of a pool task. */
export const partsPath = (task) => `/v1/tasks?parent=${task}&limit=200&fields=id,parent`;

/** Returns what a list in one order has in common: a cursor of one is of no use to another. */
export const orderOf = ({ q, state, outcome, sort, order }) => JSON.stringify([q, state, outcome, sort, order]);

/** Draws tasks in their order, each with what `actionsOf` returns; the heads sort the list. */
export function drawTasks(box, tasks, { now, actionsOf, asked, searched }) {
  // The links of the heads keep what else the address asks.
  const order = orderOf(asked);
  if (box.dataset.order !== order) box.replaceChildren();
  box.dataset.order = order;
  drawTable(box, tasks, {
    caption: "Tasks",
    columns: COLUMNS.map((column) => headOf(column, asked)),
    empty: searched ? () => ["No task has all of that."] : noTask,
    row: (task) => taskRow(task, actionsOf(task), now),
    sign: (task) => JSON.stringify([task, actionsOf(task) !== null, dateOf(now)]),
  });
}

/**
 * Returns the head of a column: a link that sorts by it, upwards first.
 * @param {{ title: string, sort?: string }} column
 * @param {any} asked
 */
function headOf({ title, sort }, asked) {
  if (!sort) return title;
  const own = asked.sort === sort;
  const order = own && asked.order === "asc" ? "desc" : "asc";
  const href = hrefOf({ sort, order: order === "asc" ? null : order, after: null, page: null });
  const arrow = own ? element("span", { "aria-hidden": "true" }, asked.order === "asc" ? " ↑" : " ↓") : null;
  return { content: element("a", { href, "data-sort": sort, title: `sort by ${title.toLowerCase()}` }, title, arrow), sorted: own ? asked.order : null };
}

function noTask() {
  return [
    "No task yet. ",
    element("code", {}, "parley rtt HOST"),
    " measures once; ",
    element("code", {}, "parley task create"),
    " measures repeatedly.",
  ];
}

/** Draws the way to other pages of the list; `before` is the cursor of the page before if it is known. */
export function drawPages(box, { page, count, next, before }) {
  if (page === 1 && !next) return box.replaceChildren();
  const first = (page - 1) * PAGE + 1;
  const link = (words, fields) => element("a", { href: hrefOf(fields) }, words);
  const links = [
    page > 1 ? link("First", { after: null, page: null }) : null,
    page > 1 && before !== undefined ? link("Previous", { after: before || null, page: page > 2 ? page - 1 : null }) : null,
    element("span", {}, count ? `${first} to ${first + count - 1}` : "nothing more"),
    next ? link("Next", { after: next, page: page + 1 }) : null,
  ];
  return refill(box, links.filter((each) => each !== null));
}

function taskRow(task, button, now) {
  const { latest } = task;
  const mesh = task.reference?.mesh;
  const cells = [
    ["badge", stateBadge(task.state)],
    ["what", name(task), ...whyNot(task).map((why) => element("p", { class: "reason" }, readable(why, now)))],
    ["judged", ...outcomeOf(task, now)],
    ["value", ...(latest ? latestOf(latest, now) : [])],
    ["mesh", mesh ? element("a", { href: addressOf({ mesh }) }, mesh) : null],
    ["schedule", scheduleWords(task.schedule, now, task.after)],
    ["when", ...nextRun(task, now)],
    ["runs", seatCount(task.seats), runCounts(task.runs, task.judgements)],
    ["more", element("a", { href: `#task=${task.id}`, "aria-label": `its runs: ${task.headline}, task ${task.id}` }, "its runs"), button],
  ];
  return element(
    "tr",
    { class: `task ${stateOf(task.state).kind}`, role: "row" },
    cells.map(([kind, ...content]) => element("td", { class: kind, role: "cell" }, content)),
  );
}

// What is to be thought of its newest slot, and why; a task that was refused has said so.
function outcomeOf({ state, outcome }, now) {
  const look = lookOf({ state: "active", outcome });
  if (state === "refused" || look === "unknown") return [];
  return [outcomeBadge(look), look === "good" || !outcome.reason ? null : element("p", { class: "reason" }, readable(outcome.reason, now))];
}

function latestOf({ run, ends_at: ended, summary, verdict }, now) {
  return [element("a", { href: hrefOf({ run }) }, summary), element("p", { class: "reason" }, ticking("age", Date.parse(ended), now)), doubt(verdict, [], now)];
}

function name(task) {
  return element(
    "span",
    { class: "name", title: `${task.headline}: task ${task.id}, revision ${task.revision}, led by ${task.lead}` },
    ...headlineOf(task),
    task.campaign ? element("small", {}, ` for ${task.campaign}`) : null,
    task.requester ? element("small", {}, ` by ${task.requester}`) : null,
  );
}

/** Returns the reason of a task, why a run waits for time, and why seats of a pool task are empty. */
function whyNot({ reason, waiting, seats }) {
  const empty = seats && seats.taken < seats.wanted ? seats.reason : null;
  return [...new Set([reason, waiting, empty])].filter(Boolean);
}

function seatCount(seats) {
  if (!seats) return null;
  const kind = seats.taken < seats.wanted ? "seats missed" : "seats";
  return element("p", { class: kind }, element("b", {}, `${seats.taken} of ${seats.wanted}`), " seats taken");
}

function nextRun(task, now) {
  if (task.next_run_at) {
    const instant = Date.parse(task.next_run_at);
    return [ticking("distance", instant, now), timeElement(instant, now)];
  }
  if (task.paused_at) return ["paused since ", timeElement(Date.parse(task.paused_at), now)];
  if (task.state !== "active") return [];
  return [task.planned ? "none booked" : "being planned"];
}

function runCounts(runs, judgements) {
  const bad = BAD_RESULTS.filter((word) => judgements[word]);
  const finished = (runs.finished ?? 0) - bad.reduce((sum, word) => sum + judgements[word], 0);
  const items = Object.entries({ ...runs, finished }).filter(([, count]) => count > 0);
  if (!items.length && !bad.length) return "no run yet";
  items.sort(([one], [other]) => order(one) - order(other));
  const item = ({ word, kind }, count) => element("li", { class: kind }, element("b", {}, String(count)), ` ${word}`);
  return element(
    "ul",
    { class: "tally" },
    bad.map((word) => item(LOOKS[word], judgements[word])),
    items.map(([state, count]) => item(stateOf(state), count)),
  );
}

const ORDER = ["failed", "missed", "gone", "done", "running", "future", "waiting"];
const order = (state) => ORDER.indexOf(stateOf(state).kind);
