// A mesh as matrices: for each source and destination the latest value and how good it is, what was delivered, and its age.

import { valueText, wordsOf } from "./chart-layout.js";
import { element, icon } from "./dom.js";
import { drawTable } from "./lists.js";
import { figuresOf } from "./pairs.js";
import { ticking, timeElement } from "./parts.js";
import { addressOf } from "./place.js";
import { levelOf, originWords, thresholdsOf, thresholdWords, worstOf } from "./thresholds.js";
import { stateOf } from "./words.js";

export const MESHES_PATH = "/v1/meshes?limit=100";
const PAIRS_MOST = 3_000;
// Maximum number of figures below the value of a cell.
const FIGURES_MORE = 3;
const MARKS = { good: "check", fair: "alert", bad: "cross" };

/** Returns the pairs of a mesh with their delivery and latest results, and whether there are more. */
export async function fetchMesh(api, name) {
  const path = `/v1/meshes/${name}/pairs?limit=500`;
  const pairs = [];
  let next = null;
  do {
    const page = await api.get(next ? `${path}&cursor=${encodeURIComponent(next)}` : path);
    pairs.push(...page.items);
    next = page.next;
  } while (next && pairs.length < PAIRS_MOST);
  return { pairs, more: next !== null };
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

/**
 * Draws the matrices of a mesh, one for each entry of its file; `figures` has by entry the figure that is shown.
 * Calls `redraw()` when another one is chosen.
 */
export function drawMesh(box, { pairs, more }, { now, figures, redraw }) {
  const entries = [...new Set(pairs.map(entryOf))].sort();
  const active = box.contains(document.activeElement) ? document.activeElement : null;
  const [href, field] = [active?.getAttribute("href"), active?.id];
  const made = entries.map((entry) => {
    const own = pairs.filter((pair) => entryOf(pair) === entry);
    return matrix(entry, own, { now, figure: figures.get(entry), choose: (name) => redraw(figures.set(entry, name)) });
  });
  const none = element("p", { class: "empty" }, "No pair has measured yet.");
  const rest = more ? [element("p", { class: "hint" }, `These are the first ${pairs.length} pairs; `, element("code", {}, "parley mesh status"), " has all.")] : [];
  box.replaceChildren(...(made.length ? [...made, keyOf()] : [none]), ...rest);
  if (href) box.querySelector(`a[href="${CSS.escape(href)}"]`)?.focus();
  else if (field) document.getElementById(field)?.focus();
}

// Two entries of a file may have the same test.
const entryOf = ({ key, test }) => key.split("/")[0] || test;

function keyOf() {
  const marks = Object.entries(MARKS).map(([level, picture]) => element("span", { class: `mark ${level}` }, icon(picture), level));
  const words = "In each cell the latest result, below it how many of the runs that were due in the last 24 h have a result, and how old the latest one is. Delivery is fair below 99 %, and bad below 90 %.";
  return element("p", { class: "hint levels" }, marks, " ", words);
}

function matrix(entry, pairs, { now, figure, choose }) {
  const names = figuresOf(pairs.flatMap(({ latest }) => latest ?? []));
  const name = names.includes(figure) ? figure : names[0];
  const of = thresholdsOf(pairs);
  const at = new Map(pairs.map((pair) => [`${pair.source} ${pair.dest}`, pair]));
  const alone = pairs.every(({ source, dest }) => source === dest);
  const sources = endsOf(pairs, "source");
  const dests = alone ? [] : endsOf(pairs, "dest");
  const draw = (pair) => (pair ? cell(pair, name, of(pair), now) : element("td", { class: "none" }, ""));
  const head = element("tr", {}, element("td", {}, alone ? "on" : "from \\ to"), alone ? element("th", { scope: "col" }, "latest result") : dests.map((dest) => element("th", { scope: "col" }, dest)));
  const rows = sources.map((source) => element("tr", {}, element("th", { scope: "row" }, source), alone ? draw(at.get(`${source} ${source}`)) : dests.map((dest) => draw(at.get(`${source} ${dest}`)))));
  const [{ test }] = pairs;
  const options = names.map((each) => element("option", { value: each, selected: each === name }, wordsOf(each)));
  const select = names.length > 1 ? element("label", {}, "Figure ", element("select", { id: `figure-${entry}`, change: ({ target }) => choose(target.value) }, options)) : null;
  const heading = element("div", { class: "heading" }, element("h3", {}, element("b", { class: "test" }, entry), entry === test ? null : ` (${test})`), select);
  const caption = element("caption", { class: "unseen" }, `${entry}: ${name ? wordsOf(name) : "results"}`);
  const table = element("div", { class: "matrix", tabindex: "0", role: "group", "aria-label": `Matrix of ${entry}` }, element("table", {}, caption, element("thead", {}, head), element("tbody", {}, rows)));
  return element("section", { class: "found" }, heading, table, element("p", { class: "hint" }, thresholdSentences(pairs, names, name, of)));
}

const endsOf = (pairs, end) => [...new Set(pairs.map((pair) => pair[end]))].sort((one, other) => one.localeCompare(other, "en", { numeric: true }));

// Pairs of one entry have the same thresholds, unless the file was changed and not applied to all.
function thresholdSentences(pairs, names, shown, of) {
  const written = { ...pairs.find(({ thresholds }) => Object.keys(thresholds).length)?.thresholds };
  const all = of({ ...pairs[0], thresholds: written });
  const unitOf = (name) => pairs.flatMap(({ latest }) => latest?.metrics ?? []).find((metric) => metric.name === name)?.unit ?? "1";
  const told = names.filter((name) => all[name]).map((name) => `${wordsOf(name)} ${thresholdWords(all[name], unitOf(name))} (${originWords(name, name in written)})`);
  const unknown = Object.keys(written).filter((name) => !names.includes(name)).map((name) => `${name}, which the mesh file has thresholds for, is in no result`);
  const without = shown && !all[shown] ? [`${wordsOf(shown)} has no thresholds: the mesh file can have them`] : [];
  const sentences = [...told, ...without, ...unknown];
  return sentences.length ? `${sentences.join("; ")}.` : "";
}

function cell(pair, name, thresholds, now) {
  const { latest } = pair;
  const metrics = (latest?.metrics ?? []).map((metric) => ({ ...metric, level: levelOf(metric, thresholds) }));
  const shown = metrics.filter((metric) => metric.name === name);
  const beyond = metrics.filter((metric) => metric.name !== name && metric.level && metric.level !== "good");
  const level = worstOf([...[...shown, ...beyond].map((metric) => metric.level), !latest && pair.due ? "bad" : null]);
  const [first, ...others] = shown;
  const words = first ? valueText(first.value, first.unit) : wordsWithout(pair);
  const address = addressOf({ view: "pair", source: pair.source, dest: pair.dest });
  const value = element("a", { href: address, title: latest?.summary ?? null }, words);
  return element(
    "td",
    { class: level ?? "none" },
    level ? mark(level) : null,
    element("b", { class: "value" }, value),
    [...others, ...beyond].slice(0, FIGURES_MORE).map((metric) => element("small", { class: metric.level && metric.level !== "good" ? `beyond ${metric.level}` : null }, figureWords(metric, name))),
    latest?.verdict && latest.verdict !== "clean" ? element("small", { class: `doubt ${latest.verdict}` }, latest.verdict) : null,
    delivery(pair),
    latest ? element("small", {}, ticking("age", Date.parse(latest.ends_at), now)) : null,
  );
}

function wordsWithout({ latest, due }) {
  if (latest) return latest.summary || "no figure";
  return due ? "no result" : "no result yet";
}

function figureWords({ name, value, unit, labels }, shown) {
  const label = Object.values(labels).join(" ").replaceAll("_", " ");
  return [name === shown ? null : wordsOf(name), label, valueText(value, unit)].filter(Boolean).join(" ");
}

// The word is for those who do not see the picture.
function mark(level) {
  return element("span", { class: `mark ${level}` }, icon(MARKS[level]), element("span", { class: "unseen" }, `${level}: `));
}

function delivery({ due, delivered, causes }) {
  if (!due) return element("small", {}, "nothing due");
  const share = delivered / due;
  const level = share >= 0.99 ? "good" : share >= 0.9 ? "fair" : "bad";
  const title = causes.map(({ cause, count }) => `${count} × ${cause}`).join(", ") || null;
  const words = [`${delivered} of ${due} delivered`, level === "good" ? null : element("span", { class: "cause" }, ` – ${causes[0]?.cause ?? ""}`)];
  return element("small", { class: `delivery ${level}`, title }, level === "good" ? null : mark(level), words.filter(Boolean));
}
