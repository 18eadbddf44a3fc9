// The view of a pair: every test between two ends over time, in both directions.

import { causeList, commonCauses, commonList } from "./cause-list.js";
import { element, refill } from "./dom.js";
import { courseOf, figuresOf, valueText, wordsOf } from "./figures.js";
import { drawTable } from "./lists.js";
import { listEntryOf } from "./model.js";
import { followUpList, runBadge, timeElement } from "./parts.js";
import { isTrouble } from "./outcomes.js";
import { bandsOf, endsOf, pairsOf } from "./pairs.js";
import { addressOf, adjust, go, hrefOf, place } from "./place.js";
import { plot } from "./plot.js";
import { setCall, setHeading } from "./view-frame.js";

const HOUR = 3_600_000;
const SPANS = { "1 h": 1, "6 h": 6, "24 h": 24, "7 d": 168, "30 d": 720 };
const TASKS_PATH = "/v1/tasks?limit=500&fields=id,headline,test,state,reference,participants";
const FIELDS = "id,task,headline,test,state,outcome,reason,summary,scheduling_class,priority,starts_at,ends_at,participants,verdict,verdict_reasons,metrics,followed_by";
const TASKS_MOST = 2_000;
const RUNS_MOST = 4_000;
const LISTED = 50;

export function open(box, { api, model, caller, tools }) {
  // The figure that is shown of each test.
  const chosen = new Map();
  /** @type {(() => void)[]} */
  let plots = [];
  let signature = "";
  const close = () => {
    for (const remove of plots) remove();
    plots = [];
  };
  const redraw = () => {
    signature = "";
    return fetch();
  };

  async function fetch() {
    const { source, dest, span } = place();
    const words = source && dest ? `&q=${encodeURIComponent(`${source} ${dest}`)}` : "";
    const tasks = await all(api, TASKS_PATH + words, TASKS_MOST);
    // The heading is that of another view if the reader has gone on meanwhile.
    if (!box.isConnected) return undefined;
    if (!source || !dest) return drawPairs(pairsOf(tasks));
    const hours = SPANS[span] ?? 24;
    const to = model.now();
    const from = to - hours * HOUR;
    const own = tasks.map((task) => ({ ...task, ends: endsOf(task) })).filter(({ ends }) => ends?.includes(source) && ends.includes(dest) && ends[0] !== ends[1]);
    const found = await Promise.all(own.map((task) => all(api, runsPath(task, from), RUNS_MOST).then((runs) => runs.map((run) => runOf(run, task)))));
    const wrong = own.filter((_, index) => found[index].some(isTrouble)).map(({ id }) => id);
    const common = wrong.length ? await commonCauses(api, caller(), wrong) : [];
    if (place().source !== source || place().dest !== dest) return undefined;
    return drawPair(found.flat(), { common, source, dest, from, to, span: span ?? "24 h", own });
  }

  function drawPairs(pairs) {
    close();
    setHeading("Pairs");
    setCall(TASKS_PATH);
    tools.replaceChildren();
    delete tools.dataset.pair;
    signature = "";
    const list = box.querySelector("#pairs") ?? element("div", { id: "pairs" });
    if (!list.isConnected) box.replaceChildren(list);
    drawTable(list, pairs.map((pair) => ({ ...pair, id: pair.key })), {
      caption: "Pairs",
      columns: ["Pair", "There", "Back"],
      empty: () => ["No task measures between two ends yet."],
      row: pairRow,
      sign: (pair) => JSON.stringify(pair),
    });
  }

  function drawPair(runs, { common, source, dest, from, to, span, own }) {
    setHeading(`${source} ⇄ ${dest}`);
    setCall(`/v1/runs?participant=${encodeURIComponent(source)}&target=${encodeURIComponent(dest)}`);
    drawTools({ source, dest, span });
    const next = JSON.stringify([source, dest, span, common, runs.map(({ id, state }) => id + state), [...chosen]]);
    if (next === signature) return undefined;
    signature = next;
    const open = new Set([...box.querySelectorAll("details[open][data-key]")].map(({ dataset }) => dataset.key));
    close();
    const tests = [...new Set(runs.map(({ test }) => test))].sort();
    const made = tests.map((test) => testSection(runs.filter((run) => run.test === test), { test, from, to, open }));
    const none = element("p", { class: "empty" }, own.length ? `None of its ${own.length} tasks measured in ${span}.` : "No task measures this pair.");
    refill(box, [commonList(common, model.now()), ...(made.length ? made.map(({ section }) => section) : [none])].filter((each) => each !== null));
    return Promise.all(made.map(({ draw }) => draw()));
  }

  function diagnosisOf(runs, lost) {
    const asking = runs.filter(({ followedBy }) => followedBy.length).sort((one, other) => other.starts - one.starts);
    // What failed shows in its causes what was measured because of it.
    if (!asking.length || lost.some(({ followedBy }) => followedBy.length)) return [];
    const because = element("p", { class: "hint" }, "Measured because of the run of ", timeElement(asking[0].starts, model.now()), ":");
    return [because, followUpList(asking[0].followedBy, model.now())];
  }

  function testSection(runs, { test, from, to, open }) {
    const names = figuresOf(runs);
    const lost = runs.filter(isTrouble);
    const canvas = element("div", { class: "plot" });
    const name = names.includes(chosen.get(test)) ? chosen.get(test) : names[0];
    const choose = ({ target }) => {
      chosen.set(test, target.value);
      redraw().then(() => box.querySelector(`select[data-test="${test}"]`)?.focus());
    };
    const options = names.map((each) => element("option", { value: each, selected: each === name }, wordsOf(each)));
    const select = names.length > 1 ? element("label", {}, "Figure ", element("select", { "data-test": test, change: choose }, options)) : null;
    const done = runs.length - lost.length;
    const heading = element("div", { class: "heading" }, element("h3", {}, element("b", { class: "test" }, test)), select, element("span", { class: "hint" }, `${done} of ${runs.length} good or fair${doubtWords(runs)}`));
    const listed = element("details", { "data-key": `list ${test}`, open: open.has(`list ${test}`) }, element("summary", {}, "As a list"), runTable(runs, name, model.now()));
    const doubtful = runs.some(({ verdict }) => verdict && verdict !== "clean");
    const marks = [doubtful && "Behind the lines: doubtful results, contaminated ones darker.", lost.length && "Below: × failed or bad, • missed."].filter(Boolean);
    const causes = lost.length ? causeList(lost, open, model.now(), { shown: 5 }) : null;
    const section = element("section", { class: "measured" }, heading, name ? canvas : null, name && marks.length ? element("p", { class: "hint" }, marks.join(" ")) : null, causes, diagnosisOf(runs, lost), listed);
    const draw = async () => {
      if (!name) return;
      const course = courseOf(runs, name);
      const label = `${test}, ${wordsOf(name)}, ${course.lines.map(({ title }) => title).join(", ")}`;
      const context = { now: model.now(), onOpen: ({ id }) => go({ run: id }), label };
      plots.push(await plot(canvas, { course, bands: bandsOf(runs), lost, from, to }, context));
    };
    return { section, draw };
  }

  function drawTools({ source, dest, span }) {
    if (tools.dataset.pair === `${source} ${dest} ${span}`) return;
    tools.dataset.pair = `${source} ${dest} ${span}`;
    const spans = Object.keys(SPANS).map((words) => element("button", { type: "button", "aria-pressed": String(words === span), click: () => adjust({ span: words }) }, words));
    refill(tools, [
      element("div", { class: "spans", role: "group", "aria-label": "How far back" }, spans),
      element("a", { href: addressOf({ view: "pair" }) }, "all pairs"),
    ]);
  }

  return {
    events: ["ended"],
    gap: 20_000,
    fetch,
    close() {
      close();
      delete tools.dataset.pair;
    },
  };
}

const runsPath = (task, from) => `/v1/runs?state=finished,failed,missed,unplaced&task=${task.id}&from=${new Date(from).toISOString()}&order=desc&limit=500&fields=${FIELDS}`;

async function all(api, path, most) {
  const items = [];
  for (let next = null; ; ) {
    const page = await api.get(next ? `${path}&cursor=${next}` : path);
    items.push(...page.items);
    next = page.next;
    if (!next || items.length >= most) return items;
  }
}

function runOf(document, task) {
  return { ...listEntryOf(document), metrics: document.metrics, between: task.ends, way: task.ends.join(" → ") };
}

function doubtWords(runs) {
  const words = ["suspicious", "contaminated"].map((verdict) => [runs.filter((run) => run.verdict === verdict).length, verdict]);
  return words.filter(([count]) => count).map(([count, verdict]) => `, ${count} ${verdict}`).join("");
}

// The newest runs, for those who read the plot with something else than their eyes.
function runTable(runs, name, now) {
  const newest = [...runs].sort((one, other) => other.starts - one.starts).slice(0, LISTED);
  const rows = newest.map((run) => {
    const values = run.metrics.filter((metric) => metric.name === name).map(({ value, unit }) => valueText(value, unit));
    return element(
      "tr",
      {},
      element("td", {}, timeElement(run.starts, now)),
      element("td", {}, element("a", { href: hrefOf({ run: run.id }) }, run.way)),
      element("td", {}, runBadge(run)),
      element("td", {}, values.join(", ") || run.reason || ""),
      element("td", {}, run.verdict ?? ""),
    );
  });
  const heads = ["When", "Way", "State", "Value or reason", "Verdict"].map((words) => element("th", { scope: "col" }, words));
  return element("table", { class: "plain-table" }, element("thead", {}, element("tr", {}, heads)), element("tbody", {}, rows));
}

function pairRow({ source, dest, there, back }) {
  const tests = (tasks) => [...new Set(tasks.map(({ test }) => test.type))].sort().join(", ") || "–";
  const link = element("a", { href: addressOf({ view: "pair", source, dest }) }, element("b", { class: "test" }, source), " ⇄ ", element("b", { class: "test" }, dest));
  const cells = [["what", link], ["there", tests(there)], ["back", tests(back)]];
  return element("tr", { role: "row" }, cells.map(([kind, content]) => element("td", { class: kind, role: "cell" }, content)));
}
