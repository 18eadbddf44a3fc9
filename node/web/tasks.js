// The list of tasks: what they measure, when, and the counts of their runs.

import { element } from "./dom.js";
import { drawTable } from "./lists.js";
import { headlineOf, stateBadge, ticking, timeElement } from "./parts.js";
import { dateOf, readable, scheduleWords, stateOf } from "./words.js";

const COLUMNS = ["State", "Task", "Schedule", "Next run", "Runs so far", ""];
const ENDED_SHOWN = 12;
const OPEN = new Set(["active", "paused", "refused"]);
const RANK = { refused: 0, active: 1, paused: 2 };

/** The queries for all active and paused tasks, and for the newest of the others. */
const FIELDS = [
  ...["id", "headline", "state", "reason", "waiting", "revision", "paused_at", "schedule", "after", "lead", "led_here"],
  ...["campaign", "created_at", "next_run_at", "planned", "runs", "pool", "seats", "parent", "requester", "test"],
].join();
export const TASK_PATHS = [`/v1/tasks?state=active,paused&limit=200&fields=${FIELDS}`, `/v1/tasks?limit=20&fields=${FIELDS}`];

/** Returns the query for the newest tasks of the seats of a pool task. */
export const partsPath = (task) => `/v1/tasks?parent=${task}&limit=200&fields=id,parent`;

/** Draws the tasks, each with what `actionsOf` returns: refused ones first, then by their next run, then the ended ones. */
export function drawTasks(box, model, actionsOf) {
  const tasks = [...model.tasks.values()];
  const open = tasks.filter(({ state }) => OPEN.has(state));
  const ended = tasks.filter(({ state }) => !OPEN.has(state));
  open.sort((one, other) => (RANK[one.state] ?? 3) - (RANK[other.state] ?? 3) || byNextRun(one, other));
  ended.sort((one, other) => Date.parse(other.created_at) - Date.parse(one.created_at));
  drawTable(box, [...open, ...ended.slice(0, ENDED_SHOWN)], {
    caption: "Tasks",
    columns: COLUMNS,
    empty: noTask,
    row: (task) => taskRow(task, actionsOf(task), model.now()),
    sign: (task) => JSON.stringify([task, actionsOf(task) !== null, dateOf(model.now())]),
  });
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

function byNextRun(one, other) {
  const [first, second] = [one, other].map(({ next_run_at: next }) => (next ? Date.parse(next) : Infinity));
  return first === second ? 0 : first - second;
}

function taskRow(task, button, now) {
  const cells = [
    ["badge", stateBadge(task.state)],
    ["what", name(task), ...whyNot(task).map((why) => element("p", { class: "reason" }, readable(why, now)))],
    ["schedule", scheduleWords(task.schedule, now, task.after)],
    ["when", ...nextRun(task, now)],
    ["runs", seatCount(task.seats), runCounts(task.runs)],
    ["more", element("a", { href: `#task=${task.id}`, "aria-label": `its runs: ${task.headline}, task ${task.id}` }, "its runs"), button],
  ];
  return element(
    "tr",
    { class: `task ${stateOf(task.state).kind}`, role: "row" },
    cells.map(([kind, ...content]) => element("td", { class: kind, role: "cell" }, content)),
  );
}

function name(task) {
  return element(
    "span",
    { title: `task ${task.id}, revision ${task.revision}, led by ${task.lead}` },
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

function runCounts(runs) {
  const items = Object.entries(runs).filter(([, count]) => count > 0);
  if (!items.length) return "no run yet";
  items.sort(([one], [other]) => order(one) - order(other));
  return element(
    "ul",
    { class: "tally" },
    items.map(([state, count]) => {
      const { word, kind } = stateOf(state);
      return element("li", { class: kind }, element("b", {}, String(count)), ` ${word}`);
    }),
  );
}

const ORDER = ["failed", "missed", "gone", "done", "running", "future", "waiting"];
const order = (state) => ORDER.indexOf(stateOf(state).kind);
