// Connects the parts of the page: what to fetch when, and what to draw with it.

import { Actions, CALLER_PATH, may, runActions, taskActions } from "./actions.js";
import { Api, ApiError } from "./api.js";
import { chart, coursePath, measured } from "./chart.js";
import { coalesced } from "./coalesce.js";
import { byId, element, refill, setText } from "./dom.js";
import { closeDrawer, openDrawer, showMessage, showRun, showRuns } from "./drawer.js";
import * as header from "./header.js";
import { drawList, ENTRY_FIELDS, failuresPath, LIST_LENGTHS, LIST_NAMES, listPath, RUN_FIELDS } from "./lists.js";
import { DAY, judgedAs, Model } from "./model.js";
import { lookOfResult } from "./outcomes.js";
import { tick } from "./parts.js";
import { addressOf, go, leave, place, viewOf } from "./place.js";
import { Stream } from "./stream.js";
import { partsPath } from "./tasks.js";
import { spanTitle, Timeline } from "./timeline.js";
import { LANES, pieceOf } from "./timeline-layout.js";
import { Views } from "./views.js";
import { isOver, readable, stateOf } from "./words.js";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
// Maximum number of changed runs to ask for by their ids; for more, the lists are fetched again.
const NAMED_AT_MOST = 60;
// Events tell what changes; everything is asked for this rarely in case one is lost.
const SAFETY = 300_000;
const RETRY = 30_000;
const SCHEDULE_AT_MOST = 2_000;
const BOOKED = new Set(["held", "scheduled", "running", "merging"]);
const WITH_REASON = new Set(["waiting", "set-aside"]);

const model = new Model();
const api = new Api(askToken);
const timeline = new Timeline(model, () => refreshSchedule({ urgent: true }));
const actions = new Actions(api, afterAction);
const views = new Views({ api, model, actions, actionsOf, reporting, caller: () => caller }, reporting);
const changed = new Set();
/** @type {{ label: string | null, role: string } | null} who reads this page */
let caller = null;
/** @type {{ since: number, why: string | null } | null} why is the node's reason if it gave one */
let down = null;
/** @type {string | null} */
let problem = null;
let opened = false;
/** @type {Promise<void> | null} */
let firstClock = null;
let moreFollow = false;

// ------------------------------------------------------------------------------------------------
// Fetching: the less often, the more the node has to do for it, and less often if the node is slow
// ------------------------------------------------------------------------------------------------

const refreshLists = coalesced(() => reporting(fetchLists), 5_000);
const refreshChanged = coalesced(() => reporting(fetchChanged), 8_000);
const refreshSums = coalesced(() => reporting(fetchSums), 30_000);
const refreshSchedule = coalesced(() => reporting(fetchSchedule), 30_000);
const refreshFilter = coalesced(() => reporting(fetchFilter), 3_000);
const refreshNodes = coalesced(() => reporting(fetchNodes), 3_000);
const refreshCourse = coalesced(() => reporting(fetchCourse), 5_000);
const refreshCaller = coalesced(() => reporting(fetchCaller), 60_000);
const refreshDrawer = coalesced(() => reporting(fetchDrawer), 500);

function refreshAll() {
  refreshSums();
  refreshNodes();
  refreshCaller();
  refreshDrawer();
  if (views.isOverview) refreshOverview();
  else views.refresh();
}

function refreshOverview(how = {}) {
  refreshLists(how);
  refreshSchedule(how);
  refreshFilter(how);
  refreshCourse(how);
}

/** Runs a fetch and returns whether it succeeded; if not, the page shows why until one does. */
async function reporting(action) {
  try {
    // The browser's clock may be wrong, so the node's clock decides what is past and what is next.
    if (!model.clockKnown) await (firstClock ??= fetchClock());
    await action();
    problem = null;
    // The node answers, so retry the stream at once.
    if (down !== null) stream.retry();
  } catch (error) {
    if (!(error instanceof ApiError)) console.error(error);
    problem = error.message;
    firstClock = null;
    drawNotice();
    return false;
  }
  drawNotice();
  return true;
}

async function fetchLists() {
  const ids = [...changed];
  const { task } = place();
  const answers = await Promise.all(LIST_NAMES.map((name) => api.get(listPath(name, model.now(), task))));
  answers.forEach(({ items, next }, index) => {
    const name = LIST_NAMES[index];
    model.merge(items);
    if (name === "next") moreFollow = next !== null;
    byId(`${name}-api`).href = listPath(name, model.now(), task);
  });
  // Only after success: runs that could not be fetched must be fetched at the next attempt.
  for (const id of ids) changed.delete(id);
  drawRuns();
  announce(ids);
}

/** Fetches the runs that events named; if they are many, the lists and the timeline instead. */
async function fetchChanged() {
  const ids = [...changed];
  if (!ids.length) return;
  if (ids.length > NAMED_AT_MOST) {
    refreshLists({ urgent: true });
    refreshSchedule({ urgent: true });
    return;
  }
  const { items } = await api.get(`/v1/runs?id=${ids.join()}&fields=${RUN_FIELDS}`);
  model.merge(items);
  const found = new Set(items.map(({ id }) => id));
  for (const id of ids) {
    changed.delete(id);
    if (!found.has(id)) model.entries.delete(id);
  }
  drawRuns();
  announce(ids);
}

/** Takes what an event says of a run, and asks for the rest of it if that matters. */
function takeRun({ id, task, state, judgement }) {
  const before = model.entries.get(id);
  model.count(task, before?.state, state, judgement);
  if (before) {
    model.shift(before, state);
    model.entries.set(id, { ...before, ...judgedAs(state, judgement) });
  }
  if (isOver(state)) refreshSums();
  if (!views.isOverview) return void header.drawCounts(model.counts());
  const isTold = BOOKED.has(before?.state) && !isOver(state) && !WITH_REASON.has(state);
  if (isTold) drawSoon();
  else if (state !== "held") {
    changed.add(id);
    refreshChanged();
  }
  if (place().task && isOver(state)) refreshCourse();
}

async function fetchSums() {
  // Whole minutes, so that the same counts have the same address.
  const now = Math.floor(model.now() / MINUTE) * MINUTE;
  const path = schedulePath(now - DAY, now + HOUR, { pieces: 1 });
  model.sum((await api.get(path)).buckets);
  header.drawCounts(model.counts());
}

// A crowded lane is asked for in pieces, any other one run by run.
async function fetchSchedule() {
  const span = timeline.span(model.now());
  const path = schedulePath(span.from, span.to, { pieces: 1 });
  const { buckets, reserved } = await api.get(path);
  const dense = model.takeLanes(buckets);
  model.reserve(reserved);
  byId("timeline-api").href = path;
  if (place().task) return fetchTaskRuns(span);
  const { from, to } = { from: span.from, to: span.to + 2 * SAFETY };
  const sparse = LANES.filter((lane) => !dense.includes(lane));
  await Promise.all([
    sparse.length ? fetchSingly(from, to, sparse) : null,
    dense.length ? fetchPieces(from, to, dense) : null,
  ]);
  drawRuns();
}

// The runs of the task that is shown: however crowded a lane is, they are drawn one by one.
async function fetchTaskRuns({ from, to }) {
  const { task } = place();
  const path = `/v1/runs?task=${task}&from=${iso(from)}&to=${iso(to)}&order=asc&limit=500&fields=${RUN_FIELDS}`;
  byId("timeline-api").href = path;
  const { items } = await following(await api.get(path), path);
  if (place().task !== task) return;
  model.merge(items);
  drawRuns();
}

async function fetchSingly(from, to, lanes) {
  const path = schedulePath(from, to, { lanes });
  const { items, next } = await following(await api.get(path), path);
  // Of runs beyond those that were read, nothing is known.
  model.replace(items, from, next ? Date.parse(items.at(-1).starts_at) : to, lanes);
}

async function fetchPieces(from, to, lanes) {
  const length = pieceOf(timeline.span(model.now()));
  const first = Math.floor(from / length) * length;
  const pieces = Math.ceil((to - first) / length);
  const { buckets } = await api.get(schedulePath(first, first + pieces * length, { lanes, pieces }));
  model.takePieces(buckets, length);
}

// The items of a page of a list and of the pages after it, up to a bound.
async function following({ items, next }, path) {
  const all = [...items];
  while (next && all.length < SCHEDULE_AT_MOST) {
    const page = await api.get(`${path}&cursor=${next}`);
    all.push(...page.items);
    next = page.next;
  }
  return { items: all, next };
}

function schedulePath(from, to, { lanes = LANES, pieces = 0 } = {}) {
  const only = lanes.length < LANES.length ? `&class=${lanes.join()}` : "";
  const how = pieces ? `&resolution=PT${Math.ceil((to - from) / pieces / 1000)}S` : `&fields=${ENTRY_FIELDS}`;
  return `/v1/schedule?from=${iso(from)}&to=${iso(to)}${only}${how}`;
}

const iso = (instant) => new Date(instant).toISOString();

/** Fetches the task whose runs are shown; the runs of a pool task are those of the tasks of its seats. */
async function fetchFilter() {
  const { task } = place();
  if (!task) return;
  const found = await api.get(`/v1/tasks/${task}`);
  model.tasks.set(task, found);
  const { items } = found.pool ? await api.get(partsPath(task)) : { items: [] };
  model.parts = new Map(items.map((part) => [part.id, part]));
  drawFilter();
  drawRuns();
}

/** Fetches the figures of the task whose runs are shown. */
async function fetchCourse() {
  const { task } = place();
  const { items } = task ? await api.get(coursePath(task)) : { items: [] };
  if (place().task !== task) return;
  const panel = byId("course-panel");
  const signature = JSON.stringify(items);
  if (panel.dataset.signature === signature) return;
  panel.dataset.signature = signature;
  const drawn = chart(measured(items), { now: model.now() });
  panel.hidden = drawn === null;
  byId("course-api").href = task ? coursePath(task) : "/v1/runs";
  byId("course").replaceChildren(...(drawn ? [drawn] : []));
}

async function fetchCaller() {
  caller = await api.get(CALLER_PATH);
  byId("sign-in").hidden = caller?.label !== null;
  byId("new-task").hidden = !may(caller, "run");
  views.redraw();
  drawFilter();
}

/** Asks for what an action may have changed, and follows a task that it has created. */
function afterAction() {
  if (views.isOverview) refreshOverview({ urgent: true });
  else views.refresh({ urgent: true });
  refreshDrawer({ urgent: true });
}

/** Returns a button that opens the actions on a task; none if there are none. */
function actionsOf(task) {
  const names = taskActions(task, caller);
  if (!names.length) return null;
  const button = element("button", { type: "button", "aria-label": `act on ${task.headline}` }, "act …");
  button.addEventListener("click", () => actions.choose(taskActions(model.tasks.get(task.id) ?? task, caller), { task }));
  return button;
}

function drawFilter() {
  const known = model.tasks.get(place().task);
  setText(byId("filter-name"), known ? known.headline : `task ${place().task ?? ""}`);
  const shown = known ? JSON.stringify([known.id, known.state, caller?.role]) : "";
  const box = byId("filter-actions");
  if (box.dataset.shown === shown) return;
  box.dataset.shown = shown;
  const buttons = known && actions.buttons(taskActions(known, caller), { task: known });
  refill(box, buttons ? [buttons] : []);
}

async function fetchClock() {
  const sent = Date.now();
  const clock = await api.get("/v1/clock");
  model.setClock(clock.now, sent, Date.now());
  header.drawClock(model.now());
  header.drawClockState(clock);
}

async function fetchNodes() {
  await fetchClock();
  const [nodes, self] = await Promise.all([api.get("/v1/nodes"), api.get("/v1/nodes/self")]);
  header.drawSelf(self);
  header.drawNodes(nodes.items, model.now());
  if (views.isOverview) await fetchHealth();
}

/** Fetches what needs attention; who sees only their own tasks does not see the status of the node. */
async function fetchHealth() {
  caller ??= await api.get(CALLER_PATH);
  const refused = api.get("/v1/tasks?state=refused&limit=3&fields=id,headline,reason");
  const alerts = api.get("/v1/alerts?limit=100");
  const status = caller?.role === "run" ? null : await api.get("/v1/status");
  header.drawHealth(status, (await refused).items, await alerts, model.now());
  drawSoon(); // the lists have what the warnings leave
}

/** Fetches the runs of a drawer that lists them. */
async function fetchSelection() {
  const { list, lane, from, to } = place();
  const now = model.now();
  if (list === "failed") {
    const { items } = await api.get(failuresPath(now - DAY, now));
    model.merge(items);
  } else if (list === "span") {
    const path = schedulePath(Number(from), Number(to), { lanes: [lane] });
    model.merge((await following(await api.get(path), path)).items);
  }
  drawSelection();
}

async function fetchDrawer() {
  const { run: id, list } = place();
  if (list) return void (await fetchSelection());
  if (!id) return;
  try {
    const [run, explanation] = await Promise.all([
      api.get(`/v1/runs/${id}`),
      api.get(`/v1/runs/${id}/explain`).catch(() => null),
    ]);
    const streamed = run.scheduling_class === "background-multi";
    const [task, course, intervals] = await Promise.all([
      api.get(`/v1/tasks/${run.task}`).catch(() => null),
      api.get(coursePath(run.task, run)),
      streamed ? api.get(`/v1/runs/${id}/intervals?order=desc&limit=200`) : { items: [] },
    ]);
    if (place().run === id) {
      const buttons = actions.buttons(runActions(run, caller), { run, task: task ?? { id: run.task } });
      const figures = { course: measured(course.items), intervals: intervals.items };
      showRun(run, { task, explanation, buttons }, figures, model.now());
    }
  } catch (error) {
    if (place().run === id) showMessage(`run ${id}`, error.message);
    if (!(error instanceof ApiError)) throw error;
  }
}

// ------------------------------------------------------------------------------------------------
// Drawing
// ------------------------------------------------------------------------------------------------

const drawSoon = coalesced(async () => drawRuns(), 250);

function drawRuns() {
  const { task } = place();
  for (const name of LIST_NAMES) {
    model.lists[name] = model.listed(name, task);
    drawList(name, model.lists[name], model);
  }
  if (moreFollow && model.lists.next.length < LIST_LENGTHS.next) {
    moreFollow = false;
    refreshLists();
  }
  header.drawCounts(model.counts());
  timeline.draw();
  drawSelection();
}

/** Announces new failures to screen readers; everything else is only shown. */
function announce(ids) {
  const bad = model.lists.last.filter(({ id, kind }) => ids.includes(id) && kind !== "done");
  if (!bad.length) return;
  const sentences = bad.map((entry) => {
    return `${entry.headline} ${(lookOfResult(entry) ?? stateOf(entry.state)).word}: ${readable(entry.reason ?? "", model.now())}`;
  });
  setText(byId("announcer"), sentences.join(" "));
}

function drawNotice() {
  if (down === null) return header.drawNotice(problem);
  return header.drawNotice(header.downSentence(down, model.now()));
}

/** Goes where the address says, and asks for what is shown there. */
function showPlace() {
  drawPlace();
  views.show();
  // When the page is loaded, the stream comes first: what it does not tell is asked for once it is open.
  if (views.isOverview && opened) refreshOverview({ urgent: true });
}

/** Applies the address: the filter by task, and the content of the drawer. */
function drawPlace() {
  const { task, run, list } = place();
  const filter = byId("filter");
  filter.hidden = !task || viewOf() !== "overview";
  drawFilter();
  timeline.show(task);
  if (!run && !list) return closeDrawer();
  if (run && byId("drawer").dataset.shown !== `run ${run}`) showMessage(`run ${run}`, "Loading …");
  drawSelection();
  openDrawer();
  return refreshDrawer({ urgent: true });
}

// Updates a drawer that shows a list of runs.
function drawSelection() {
  const { list, lane, from, to } = place();
  if (list === "failed") {
    showRuns("failed", "Without a result, or with a bad one, in the last 24 h", model.failures(), model);
  } else if (list === "span") {
    const entries = model.between(Number(from), Number(to)).filter((entry) => entry.lane === lane);
    const title = spanTitle(lane, Number(from), Number(to), entries.length);
    showRuns(`${lane} ${from}`, title, entries, model);
  }
}

// ------------------------------------------------------------------------------------------------
// Input: events, clicks, tokens
// ------------------------------------------------------------------------------------------------

/** @type {Record<string, (data: any) => void>} by the type of an event what the page does besides its views */
const ON_EVENT = {
  run(data) {
    takeRun(data);
    if (views.isOverview && model.dense.size) refreshSchedule();
    if (place().run === data.id) refreshDrawer();
  },
  interval: ({ id }) => place().run === id && refreshDrawer(),
  task: ({ id, state }) => id === place().task && state !== "plan" && refreshFilter(),
  reservation: () => views.isOverview && refreshSchedule({ urgent: true }),
  node: () => refreshNodes(),
  alert: () => refreshNodes(),
  gap: () => refreshAll(),
};

const stream = new Stream(api, {
  onOpen() {
    down = null;
    header.drawLive("live");
    drawNotice();
    opened = true;
    refreshAll();
  },
  onEvent(type, data) {
    ON_EVENT[type]?.(data);
    views.onEvent(type, data);
  },
  onDown(why) {
    if (down === null && !model.entries.size) refreshAll();
    down = { since: down?.since ?? model.now(), why };
    header.drawLive("down");
    drawNotice();
  },
});

/** Takes the token of a link such as #token=abc, and removes it from the address. */
function takeToken() {
  const [, token] = /^#token=([\w.~-]+)$/.exec(location.hash) ?? [];
  if (!token) return;
  api.keep(token);
  history.replaceState(null, "", location.pathname + location.search);
}

/** Asks the reader for a token until one is entered. */
async function askToken(again) {
  const ask = byId("ask");
  const field = byId("ask-token");
  if (again) setText(byId("ask-why"), "The token is not valid for this node. Try another.");
  do {
    field.value = "";
    ask.showModal();
    await new Promise((resolve) => {
      ask.addEventListener("close", resolve, { once: true });
    });
  } while (!field.value);
  return field.value;
}

function listen() {
  addEventListener("hashchange", () => {
    takeToken();
    showPlace();
  });
  byId("skip").addEventListener("click", (event) => {
    // Not by its address: that is the place of the page.
    event.preventDefault();
    byId("main").focus();
  });
  listenToSearch();
  addEventListener("resize", () => {
    views.reveal();
    if (views.isOverview) drawSoon();
  });
  byId("sign-in").addEventListener("click", async () => {
    await api.signIn();
    refreshCaller({ urgent: true });
    refreshAll();
  });
  byId("new-task").addEventListener("click", () => actions.open("create"));
  const drawer = byId("drawer");
  drawer.addEventListener("close", () => {
    leave();
    closeDrawer();
  });
  drawer.addEventListener("click", ({ target }) => target === drawer && drawer.close());
  byId("drawer-close").addEventListener("click", () => drawer.close());
  // The whole row opens the run; its link is for the keyboard and for new tabs.
  document.addEventListener("click", ({ target }) => {
    if (!(target instanceof Element)) return;
    const row = /** @type {HTMLElement | null} */ (target.closest("tr[data-run]"));
    if (row && !target.closest("a, button") && !String(getSelection())) go({ run: row.dataset.run });
  });
}

/** The key "/" goes to the field, and Enter there to the view of what is found. */
function listenToSearch() {
  const field = byId("search-field");
  addEventListener("keydown", (event) => {
    const typing = event.target instanceof Element && event.target.closest("input, select, textarea, dialog");
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || typing) return;
    event.preventDefault();
    field.select();
  });
  byId("search").addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = addressOf({ view: "search", q: field.value.trim() });
  });
}

function everySecond() {
  const now = model.now();
  if (model.clockKnown) header.drawClock(now);
  tick(now);
  timeline.draw();
  views.tick(now);
}

document.documentElement.dataset.started = "true";
takeToken();
listen();
header.drawLive("connecting");
showPlace();
setInterval(everySecond, 1_000);
setInterval(refreshAll, SAFETY);
setInterval(() => down !== null && refreshAll(), RETRY);
stream.start();
