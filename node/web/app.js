// Connects the parts of the page: what to fetch when, and what to draw with it.

import { Api, ApiError } from "./api.js";
import { ARCHIVES_PATH, drawArchives, RETRY_PATH } from "./archives.js";
import { CAMPAIGNS_PATH, drawCampaigns } from "./campaigns.js";
import { chart, coursePath, measured } from "./chart.js";
import { coalesced } from "./coalesce.js";
import { byId, setText } from "./dom.js";
import { closeDrawer, openDrawer, showMessage, showRun, showRuns } from "./drawer.js";
import * as header from "./header.js";
import { drawList, LIST_NAMES, listPath } from "./lists.js";
import { DAY, Model } from "./model.js";
import { tick } from "./parts.js";
import { go, leave, place } from "./place.js";
import { Stream } from "./stream.js";
import { drawTasks, partsPath, TASK_PATHS } from "./tasks.js";
import { spanTitle, Timeline } from "./timeline.js";
import { readable, stateOf } from "./words.js";

const HOUR = 3_600_000;
// Maximum number of changed runs to fetch one by one; for more, the whole span is fetched again.
const SINGLY_AT_MOST = 6;
const SAFETY = 30_000;
const SCHEDULE_AT_MOST = 20_000;

const model = new Model();
const api = new Api(askToken);
const timeline = new Timeline(model, () => refreshSchedule({ urgent: true }));
const changed = new Set();
let down = null; // or { since, why }, where why is the node's reason if it gave one
let problem = null;
let firstClock = null;
let wholeDay = true;

// ------------------------------------------------------------------------------------------------
// Fetching: each of these runs at most twice a second, and less often if the node is slow
// ------------------------------------------------------------------------------------------------

const refreshLists = coalesced(() => reporting(fetchLists), 500);
const refreshSchedule = coalesced(() => reporting(fetchSchedule), 500);
const refreshTasks = coalesced(() => reporting(fetchTasks), 3_000);
const refreshNodes = coalesced(() => reporting(fetchNodes), 3_000);
const refreshCampaigns = coalesced(() => reporting(fetchCampaigns), 10_000);
const refreshCourse = coalesced(() => reporting(fetchCourse), 2_000);
const refreshArchives = coalesced(() => reporting(fetchArchives), 10_000);
const refreshDrawer = coalesced(() => reporting(fetchDrawer), 500);

function refreshAll() {
  refreshLists();
  refreshSchedule();
  refreshTasks();
  refreshCampaigns();
  refreshNodes();
  refreshArchives();
  refreshCourse();
  refreshDrawer();
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
  answers.forEach(({ items }, index) => {
    const name = LIST_NAMES[index];
    model.lists[name] = model.merge(items);
    byId(`${name}-api`).href = listPath(name, model.now(), task);
  });
  // Only after success: runs that could not be fetched must be fetched at the next attempt.
  for (const id of ids) changed.delete(id);
  announce(ids);
  drawRuns();
  await fetchSingly(ids.filter((id) => !answers.some(({ items }) => items.some((run) => run.id === id))));
}

// The timeline needs the changed runs that are not in the lists.
async function fetchSingly(ids) {
  if (!ids.length) return;
  if (ids.length > SINGLY_AT_MOST) return void refreshSchedule();
  const runs = await Promise.all(ids.map((id) => api.get(`/v1/runs/${id}`).catch(forgotten)));
  model.merge(runs.filter(Boolean));
  drawRuns();
}

// A run that was deleted after its event was sent is not an error.
function forgotten(error) {
  if (error.status !== 404) throw error;
}

async function fetchSchedule() {
  const now = model.now();
  const span = timeline.span(now);
  const from = Math.min(span.from, wholeDay ? now - DAY : now - HOUR);
  const to = Math.max(span.to, now + HOUR) + 5 * SAFETY;
  const path = `/v1/schedule?from=${iso(from)}&to=${iso(to)}`;
  const first = await api.get(path);
  const { items, next } = await following(first, path);
  wholeDay = false;
  model.reserve(first.reserved);
  // Of runs beyond those that were read, nothing is known.
  model.replace(items, from, next ? Date.parse(items.at(-1).starts_at) : to);
  byId("timeline-api").href = path;
  drawRuns();
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

const iso = (instant) => new Date(instant).toISOString();

async function fetchTasks() {
  const [active, newest] = await Promise.all(TASK_PATHS.map((path) => api.get(path)));
  model.tasks = new Map([...newest.items, ...active.items].map((task) => [task.id, task]));
  await fetchParts();
  drawTasks(model);
  drawRuns();
}

// The runs of a pool task are those of the tasks of its seats.
async function fetchParts() {
  const { task } = place();
  const pooled = [...model.tasks.values()].some(({ pool }) => pool);
  const { items } = pooled ? await api.get(partsPath(model.tasks.get(task)?.pool && task)) : { items: [] };
  model.parts = new Map(items.map((part) => [part.id, part]));
}

/** Fetches the figures of the task whose runs are shown. */
async function fetchCourse() {
  const { task } = place();
  const { items } = task ? await api.get(coursePath(task)) : { items: [] };
  if (place().task !== task) return;
  const drawn = chart(measured(items), { now: model.now(), on: "page" });
  const panel = byId("course-panel");
  panel.hidden = drawn === null;
  const signature = JSON.stringify(items);
  if (panel.dataset.signature === signature) return;
  panel.dataset.signature = signature;
  byId("course-api").href = task ? coursePath(task) : "/v1/runs";
  byId("course").replaceChildren(...(drawn ? [drawn] : []));
}

async function fetchCampaigns() {
  const { items } = await api.get(CAMPAIGNS_PATH);
  drawCampaigns(items);
}

async function fetchArchives() {
  const { items } = await api.get(ARCHIVES_PATH);
  drawArchives(items, model.now(), retryArchive);
}

function retryArchive(destination) {
  return reporting(async () => {
    await api.send(RETRY_PATH, { destination });
    await fetchArchives();
  });
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
}

async function fetchDrawer() {
  const { run: id } = place();
  if (!id) return;
  try {
    const [run, explanation] = await Promise.all([
      api.get(`/v1/runs/${id}`),
      api.get(`/v1/runs/${id}/explain`).catch(() => null),
    ]);
    const streamed = run.scheduling_class === "background-multi";
    const [task, course, intervals] = await Promise.all([
      model.tasks.get(run.task) ?? api.get(`/v1/tasks/${run.task}`).catch(() => null),
      api.get(coursePath(run.task, run)),
      streamed ? api.get(`/v1/runs/${id}/intervals?order=desc&limit=200`) : { items: [] },
    ]);
    if (place().run === id) {
      showRun(run, task, explanation, { course: measured(course.items), intervals: intervals.items }, model.now());
    }
  } catch (error) {
    if (place().run === id) showMessage(`run ${id}`, error.message);
    if (!(error instanceof ApiError)) throw error;
  }
}

// ------------------------------------------------------------------------------------------------
// Drawing
// ------------------------------------------------------------------------------------------------

function drawRuns() {
  for (const name of LIST_NAMES) drawList(name, model.lists[name], model);
  header.drawCounts(model.counts());
  timeline.draw();
  drawSelection();
}

/** Announces new failures to screen readers; everything else is only shown. */
function announce(ids) {
  const bad = model.lists.last.filter(({ id, kind }) => ids.includes(id) && kind !== "done");
  if (!bad.length) return;
  const sentences = bad.map((entry) => {
    return `${entry.headline} ${stateOf(entry.state).word}: ${readable(entry.reason ?? "", model.now())}`;
  });
  setText(byId("announcer"), sentences.join(" "));
}

function drawNotice() {
  if (down === null) return header.drawNotice(problem);
  return header.drawNotice(header.downSentence(down, model.now()));
}

/** Applies the address: the filter by task, and the content of the drawer. */
function drawPlace() {
  const { task, run, list } = place();
  const filter = byId("filter");
  const known = model.tasks.get(task);
  filter.hidden = !task;
  setText(byId("filter-name"), known ? known.headline : `task ${task ?? ""}`);
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
    showRuns("failed", "Failed and missed in the last 24 h", model.failures(), model);
  } else if (list === "span") {
    const entries = model.between(Number(from), Number(to)).filter((entry) => entry.lane === lane);
    const title = spanTitle(lane, Number(from), Number(to), entries.length);
    showRuns(`${lane} ${from}`, title, entries, model);
  }
}

// ------------------------------------------------------------------------------------------------
// Input: events, clicks, tokens
// ------------------------------------------------------------------------------------------------

const stream = new Stream(api, {
  onOpen() {
    down = null;
    // Changes during the break may concern any run of the day.
    wholeDay = true;
    header.drawLive("live");
    drawNotice();
    refreshAll();
  },
  onEvent(type, data) {
    if (type === "run") {
      changed.add(data.id);
      refreshLists();
      refreshTasks();
      refreshCampaigns();
      if (place().task) refreshCourse();
      if (place().run === data.id) refreshDrawer();
    } else if (type === "interval") {
      if (place().run === data.id) refreshDrawer();
    } else if (type === "task") {
      refreshTasks();
      refreshLists();
    } else if (type === "reservation") {
      refreshSchedule();
    } else if (type === "node") {
      refreshNodes();
    } else if (type === "archive") {
      refreshArchives({ urgent: true });
    } else if (type === "campaign") {
      refreshCampaigns({ urgent: true });
    }
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
    drawPlace();
    refreshLists({ urgent: true });
    refreshTasks({ urgent: true });
    refreshCourse({ urgent: true });
  });
  const drawer = byId("drawer");
  drawer.addEventListener("close", () => {
    leave();
    closeDrawer();
  });
  drawer.addEventListener("click", ({ target }) => target === drawer && drawer.close());
  byId("drawer-close").addEventListener("click", () => drawer.close());
  // The whole row opens the run; its link is for the keyboard and for new tabs.
  document.addEventListener("click", ({ target }) => {
    const row = target.closest("tr[data-run]");
    if (row && !target.closest("a") && !String(getSelection())) go({ run: row.dataset.run });
  });
}

function everySecond() {
  const now = model.now();
  if (model.clockKnown) header.drawClock(now);
  tick(now);
  timeline.draw();
}

document.documentElement.dataset.started = "true";
takeToken();
listen();
header.drawLive("connecting");
drawPlace();
setInterval(everySecond, 1_000);
setInterval(refreshAll, SAFETY);
stream.start();
