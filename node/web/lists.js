// Now, Next and Last: three tables of runs. A run that did not take place has its reason in its row.

import { byId, element, reconcile } from "./dom.js";
import { doubt, progressBar, headlineOf, runBadge, stateBadge, ticking, timeElement } from "./parts.js";
import { TROUBLE } from "./outcomes.js";
import { hrefOf } from "./place.js";
import { dateOf, readable, stateOf } from "./words.js";

const OVER = "finished,failed,missed,cancelled,displaced,unplaced";

// What the page shows of a run; results and figures are asked for with the run alone.
const SHARED = "task,headline,test,state,outcome,scheduling_class,priority,starts_at,ends_at,participants,reason,summary";
export const RUN_FIELDS = `id,started_at,verdict,verdict_reasons,attempt,attempts,${SHARED}`;
export const ENTRY_FIELDS = `run,${SHARED}`;

// The width below which the lists follow each other, the height of a row and of what is around a list, in pixels.
const NARROW = 1100;
const ROW = 58;
const HEADS = 78;
const NEXT_LEAST = 3;
const ROWS_LEAST = { now: 1, next: 1, last: 3 };
const ROWS_NARROW = 5;
const ROWS_AT_ONCE = 50;

/** The three lists: their queries, columns, and texts when they are empty. */
const LISTS = {
  now: {
    query: "state=running,merging&order=asc&limit=20",
    most: 20,
    columns: ["Run", "Progress", "Started"],
    cells: nowCells,
    empty: () => ["No run is in progress."],
  },
  next: {
    query: "state=scheduled,held,waiting,set-aside&order=asc&limit=40",
    most: 8,
    columns: ["Run", "Starts", "State"],
    cells: nextCells,
    empty: () => ["No run is planned. Measure something: ", element("code", {}, "parley rtt HOST")],
  },
  last: {
    query: `state=${OVER}&order=desc&limit=30`,
    most: 12,
    columns: ["State", "Result or reason", "Run", "When"],
    cells: lastCells,
    empty: () => ["No run has ended yet. The first result will appear automatically."],
  },
};

export const LIST_NAMES = Object.keys(LISTS);
export const LIST_LENGTHS = Object.fromEntries(LIST_NAMES.map((name) => [name, LISTS[name].most]));

/** Returns the query for the newest runs without a result in a span. */
export function failuresPath(from, to) {
  const [first, last] = [from, to].map((instant) => new Date(instant).toISOString());
  return `/v1/runs?state=finished,failed,missed,unplaced&outcome=${TROUBLE}&from=${first}&to=${last}&limit=200&fields=${RUN_FIELDS}`;
}

/** Returns the query of a list. "Last" ends now, so that it has no runs cancelled before their start. */
export function listPath(name, now, task) {
  const until = name === "last" ? `&to=${new Date(now + 1000).toISOString()}` : "";
  const only = task ? `&task=${task}` : "";
  return `/v1/runs?${LISTS[name].query}${until}${only}&fields=${RUN_FIELDS}`;
}

/** Returns how many rows of a list fit the screen; on a narrow one, where lists follow each other, a few. */
function rowsThatFit(name) {
  const { most } = LISTS[name];
  if (innerWidth < NARROW) return name === "now" ? most : ROWS_NARROW;
  const heads = HEADS * magnified();
  const all = innerHeight - byId(name).getBoundingClientRect().top - scrollY - heads;
  // Below what runs is what is next.
  const below = name === "now" ? all - heads - NEXT_LEAST * rowHeight("next") : all;
  return Math.max(ROWS_LEAST[name], Math.min(most, Math.floor(below / rowHeight(name))));
}

// Rows with reasons and doubts are higher than others, so those that are there tell how high one is.
function rowHeight(name) {
  const rows = byId(name).querySelectorAll("tbody tr");
  const usual = ROW * magnified();
  if (!rows.length) return usual;
  const [first, last] = [rows[0], rows[rows.length - 1]].map((row) => row.getBoundingClientRect());
  return Math.max(usual, (last.bottom - first.top) / rows.length);
}

// Everything is larger on a large screen.
const magnified = () => parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;

/** Returns whether a run took place; one cancelled before its start is not shown later either. */
const begun = ({ state, started }) => state !== "cancelled" || started !== null;

/** Draws one list; unchanged rows stay. */
export function drawList(name, entries, model) {
  const { columns, cells, empty } = LISTS[name];
  drawTable(byId(name), entries.filter(begun).slice(0, rowsThatFit(name)), {
    caption: { now: "Running now", next: "Next runs", last: "Last runs" }[name],
    columns,
    empty,
    row: (entry) => runRow(entry, model, cells),
    // The signature has the date, because times of another day are shown with it.
    sign: (entry) => JSON.stringify([entry, hrefOf({}), dateOf(model.now())]),
  });
}

/**
 * Draws a table of the first items and a button for more, or a text in its place if there are none. A column is its head, or
 * `{ content, sorted }`: sorted is asc or desc if the items are in its order.
 */
export function drawTable(box, items, { caption, columns, empty, row, sign }) {
  if (!items.length) {
    if (!box.querySelector(".empty.settled")) {
      box.replaceChildren(element("p", { class: "empty settled" }, ...empty()));
    }
    return;
  }
  if (!box.querySelector("table")) {
    const unseen = element("span", { class: "unseen" }, "Actions");
    const heads = columns.map((column) => {
      const { content, sorted } = typeof column === "string" ? { content: column || unseen, sorted: null } : column;
      const direction = { asc: "ascending", desc: "descending" }[sorted ?? ""];
      return element("th", { scope: "col", role: "columnheader", "aria-sort": direction }, content);
    });
    box.replaceChildren(
      element(
        "table",
        { role: "table" },
        element("caption", { class: "unseen" }, caption),
        element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, heads)),
        element("tbody", { role: "rowgroup" }),
      ),
    );
  }
  const shown = Number(box.dataset.shown ?? ROWS_AT_ONCE);
  const how = { key: (item) => item.id, signature: sign, build: row };
  reconcile(box.querySelector("tbody"), items.slice(0, shown), how);
  drawMore(box, items.length - shown, () => {
    box.dataset.shown = String(shown + ROWS_AT_ONCE);
    drawTable(box, items, { caption, columns, empty, row, sign });
  });
}

// The browser needs the longer for a table the more rows it has.
function drawMore(box, left, more) {
  box.querySelector(".further")?.remove();
  if (left <= 0) return;
  const words = left > ROWS_AT_ONCE ? `Show ${ROWS_AT_ONCE} of ${left} more` : `Show ${left} more`;
  box.append(element("p", { class: "further" }, element("button", { type: "button", class: "plain", click: more }, words)));
}

function runRow(entry, model, cells) {
  const made = cells(entry, model).map(([name, ...content]) =>
    element("td", { class: name, role: "cell" }, content),
  );
  const marks = { "data-run": entry.id, "data-state": entry.state };
  return element("tr", { class: `run ${entry.kind}`, role: "row", ...marks }, made);
}

function runLink(entry) {
  return element("a", { href: hrefOf({ run: entry.id }) }, headlineOf(entry));
}

function reasonLine(entry, now) {
  return entry.reason ? element("p", { class: "reason" }, readable(entry.reason, now)) : null;
}

/** Returns a line for each attempt of the slot before this one. */
function triedLines({ tried }, now) {
  return (tried ?? []).map(({ attempt, state, reason }) => element("p", { class: "reason" }, `attempt ${attempt} ${stateOf(state).word}${reason ? `: ${readable(reason, now)}` : ""}`));
}

function nowCells(entry, model) {
  const now = model.now();
  const left = entry.state === "merging" ? "merging" : ticking("left", entry.ends, now);
  return [
    ["what", runLink(entry), reasonLine(entry, now)],
    ["progress", element("div", {}, progressBar(entry, now), element("span", { class: "left" }, left))],
    ["when", timeElement(entry.starts, now)],
  ];
}

function nextCells(entry, model) {
  const now = model.now();
  return [
    ["what", runLink(entry), reasonLine(entry, now)],
    ["when", ticking("distance", entry.starts, now), timeElement(entry.starts, now)],
    ["badge", stateBadge(entry.state)],
  ];
}

function lastCells(entry, model) {
  const now = model.now();
  const summary = entry.summary ? element("p", { class: "summary" }, entry.summary) : null;
  return [
    ["badge", runBadge(entry)],
    ["outcome", reasonLine(entry, now), summary, ...triedLines(entry, now), doubt(entry.verdict, entry.doubts ?? [], now)],
    ["what", runLink(entry)],
    ["when", ticking("age", entry.starts, now), timeElement(entry.starts, now)],
  ];
}

/** Draws runs of any state into the drawer, like the list of the last runs. */
export function drawRuns(box, entries, model) {
  drawTable(box, entries, {
    caption: "Runs",
    columns: LISTS.last.columns,
    empty: () => ["None."],
    row: (entry) => runRow(entry, model, lastCells),
    sign: (entry) => JSON.stringify([entry, dateOf(model.now())]),
  });
}
