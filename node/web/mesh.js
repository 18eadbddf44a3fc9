// A mesh as a matrix: for each source and destination the latest result, its age, and what was delivered.

import { element } from "./dom.js";
import { drawTable } from "./lists.js";
import { ticking, timeElement } from "./parts.js";
import { addressOf } from "./place.js";
import { stateOf } from "./words.js";

export const MESHES_PATH = "/v1/meshes?limit=100";
const RUN_FIELDS = "task,summary,verdict,ends_at";

/** Returns what a matrix is made of: the pairs, their tasks, and the latest results. */
export async function fetchMesh(api, name) {
  const path = `/v1/meshes/${name}`;
  const runs = `/v1/runs?mesh=${name}&state=finished&limit=500&fields=${RUN_FIELDS}`;
  const asked = [`${path}/pairs?limit=500`, `${path}/tasks?limit=500`, runs].map((each) => api.get(each));
  const [pairs, tasks, latest] = (await Promise.all(asked)).map(({ items }) => items);
  return { pairs, tasks, latest };
}

/** Draws the list of meshes. */
export function drawMeshes(box, meshes, now) {
  drawTable(box, meshes.map((mesh) => ({ ...mesh, id: mesh.name })), {
    caption: "Meshes",
    columns: ["Mesh", "Tasks", "Campaigns", "Changed"],
    empty: () => ["No mesh yet: ", element("code", {}, "parley mesh apply FILE"), " measures between many nodes."],
    row: (mesh) => meshRow(mesh, now),
    sign: (mesh) => JSON.stringify(mesh),
  });
}

function meshRow({ name, tasks, campaigns, changed_at: changed }, now) {
  const counts = Object.entries(tasks).map(([state, count]) => `${count} ${stateOf(state).word}`);
  const cells = [
    ["what", element("a", { href: addressOf({ mesh: name }) }, element("b", { class: "test" }, name))],
    ["open", counts.join(", ") || "none"],
    ["reason", campaigns.join(", ")],
    ["when", timeElement(Date.parse(changed), now)],
  ];
  return element("tr", { role: "row" }, cells.map(([kind, content]) => element("td", { class: kind, role: "cell" }, content)));
}

/** Draws the matrices of a mesh, one for each test. */
export function drawMesh(box, found, now) {
  const tests = [...new Set(found.pairs.map(({ test }) => test))].sort();
  const focused = box.contains(document.activeElement) ? document.activeElement?.getAttribute("href") : null;
  const made = tests.map((test) => matrix(test, found, now));
  const hint = "The latest result of each pair, how many of its runs of the last 24 h have one, and how old it is.";
  const none = element("p", { class: "empty" }, "No pair has measured yet.");
  box.replaceChildren(...(made.length ? made : [none]), element("p", { class: "hint" }, hint));
  if (focused) box.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
}

function matrix(test, { pairs, tasks, latest }, now) {
  const own = pairs.filter((pair) => pair.test === test);
  const [sources, dests] = ["source", "dest"].map((end) => [...new Set(own.map((pair) => pair[end]))].sort());
  const taskOf = new Map(tasks.map((task) => [task.key, task.id]));
  const resultOf = new Map([...latest].reverse().map((run) => [run.task, run]));
  const at = new Map(own.map((pair) => [`${pair.source} ${pair.dest}`, pair]));
  const head = element("tr", {}, element("td", {}, "from \\ to"), dests.map((dest) => element("th", { scope: "col" }, dest)));
  const rows = sources.map((source) => {
    const cells = dests.map((dest) => {
      const pair = at.get(`${source} ${dest}`);
      return pair ? cell(pair, resultOf.get(taskOf.get(pair.key)), now) : element("td", { class: "none" }, "");
    });
    return element("tr", {}, element("th", { scope: "row" }, source), cells);
  });
  const caption = element("caption", {}, element("b", { class: "test" }, test));
  return element("div", { class: "matrix", tabindex: "0" }, element("table", {}, caption, element("thead", {}, head), element("tbody", {}, rows)));
}

function cell(pair, run, now) {
  const share = pair.due ? pair.delivered / pair.due : null;
  const kind = share === null ? "none" : share >= 0.99 ? "good" : share >= 0.9 ? "fair" : "bad";
  const why = pair.causes.map(({ cause, count }) => `${count} × ${cause}`).join(", ");
  const words = run ? run.summary : "no result yet";
  const value = element("a", { href: addressOf({ view: "pair", source: pair.source, dest: pair.dest }) }, words);
  const delivery = share === null ? "nothing due" : `${pair.delivered} of ${pair.due}`;
  return element(
    "td",
    { class: kind, title: why || null },
    value,
    element("small", {}, delivery, run ? " · " : "", run ? ticking("age", Date.parse(run.ends_at), now) : null),
    kind === "fair" || kind === "bad" ? element("small", { class: "cause" }, pair.causes[0]?.cause) : null,
  );
}
