// A mesh as matrices, one for each entry of its file: a coloured square for each source and destination, and what is not good as a list.

import { element, icon } from "./dom.js";
import { figuresOf, figureText, valueText, wordsOf } from "./figures.js";
import { drawTable } from "./lists.js";
import { Matrix, swatch } from "./matrix.js";
import { coloursOf } from "./matrix-paint.js";
import { badnessOf, lookOf, LOOKS } from "./outcomes.js";
import { doubt, outcomeBadge, ticking, timeElement } from "./parts.js";
import { addressOf, hrefOf } from "./place.js";
import { readable, stateOf } from "./words.js";

export const MESHES_PATH = "/v1/meshes?limit=100";
const PAIRS_MOST = 100_000;
// Maximum number of figures and of causes that are told of a square.
const FIGURES_MOST = 8;
const CAUSES_MOST = 3;

/** Fetches the pairs of a mesh page by page; calls `onPage(pairs, more)` with all that are there, and whether there are more. */
export async function fetchMesh(api, name, onPage) {
  const path = `/v1/meshes/${name}/pairs?limit=500`;
  const pairs = [];
  let next = null;
  do {
    const page = await api.get(next ? `${path}&cursor=${encodeURIComponent(next)}` : path);
    // The list of pairs finds them by their ids.
    for (const pair of page.items) pairs.push({ ...pair, id: pair.key });
    next = page.next;
    if (!onPage(pairs, next !== null)) return;
  } while (next && pairs.length < PAIRS_MOST);
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

// Two entries of a file may have the same test.
const entryOf = ({ key, test }) => key.split("/")[0] || test;

/** The matrices of a mesh, which stay as they are while their values change. */
export class MeshPicture {
  #box;
  #now;
  #legend = element("ul", { class: "legend squares", "aria-label": "Legend" });
  #matrices = element("div", { class: "matrices" });
  #list = element("div", { id: "mesh-list" });
  #rest = element("p", { class: "hint" });
  /** @type {any[]} */
  #pairs = [];
  #scheme = matchMedia("(prefers-color-scheme: dark)");
  #recolour = () => this.#drawLegend();
  /** @type {Map<string, EntryPicture>} */
  #entries = new Map();

  /** @param {Element} box @param {() => number} now */
  constructor(box, now) {
    this.#box = box;
    this.#now = now;
    this.#scheme.addEventListener("change", this.#recolour);
  }

  /** Shows pairs; `more` says that others follow. */
  show(pairs, more) {
    if (!this.#matrices.isConnected) {
      const heading = element("h3", {}, "What is not good, the worst first");
      this.#box.replaceChildren(this.#legend, this.#matrices, this.#rest, element("section", { class: "found" }, heading, this.#list));
    }
    const entries = grouped(pairs);
    for (const [name, picture] of this.#entries) {
      if (entries.has(name)) continue;
      picture.close();
      this.#entries.delete(name);
    }
    for (const name of [...entries.keys()].sort()) {
      const known = this.#entries.get(name) ?? new EntryPicture(name, this.#now);
      this.#entries.set(name, known);
      if (!known.section.isConnected) this.#matrices.append(known.section);
      known.show(entries.get(name));
    }
    if (!pairs.length) this.#matrices.replaceChildren(element("p", { class: "empty" }, "No pair has measured yet."));
    this.#rest.textContent = more ? `${pairs.length} pairs so far …` : "";
    this.#pairs = pairs;
    this.#drawLegend();
    if (!more) this.#drawList(pairs);
  }

  #drawLegend() {
    const pairs = this.#pairs;
    const counts = new Map();
    for (const pair of pairs) counts.set(lookOf(pair), (counts.get(lookOf(pair)) ?? 0) + 1);
    const doubtful = pairs.filter(({ latest }) => latest?.verdict && latest.verdict !== "clean").length;
    const colours = coloursOf(this.#box);
    const looks = Object.keys(LOOKS).filter((look) => counts.has(look));
    const items = looks.map((look) => element("li", {}, swatch(look, colours), element("b", {}, String(counts.get(look))), LOOKS[look].word));
    const doubts = element("li", {}, swatch("good", colours, { isDoubtful: true }), element("b", {}, String(doubtful)), "doubtful");
    this.#legend.replaceChildren(...items, ...(doubtful ? [doubts] : []));
  }

  #drawList(pairs) {
    const now = this.#now();
    const ranked = pairs.map((pair) => ({ pair, rank: badnessOf(lookOf(pair)) })).filter(({ pair }) => lookOf(pair) !== "good");
    ranked.sort((one, other) => one.rank - other.rank || (one.pair.key < other.pair.key ? -1 : 1));
    const wrong = ranked.map(({ pair }) => pair);
    drawTable(this.#list, wrong, {
      caption: "Pairs that are not good",
      columns: ["Outcome", "Pair", "Why", "Delivered", "Last result"],
      empty: () => ["Every pair is good."],
      row: (pair) => pairRow(pair, now),
      sign: (pair) => JSON.stringify(pair),
    });
  }

  close() {
    this.#scheme.removeEventListener("change", this.#recolour);
    for (const picture of this.#entries.values()) picture.close();
  }
}

function grouped(pairs) {
  const groups = new Map();
  for (const pair of pairs) {
    const entry = entryOf(pair);
    if (!groups.has(entry)) groups.set(entry, []);
    groups.get(entry).push(pair);
  }
  return groups;
}

function pairRow(pair, now) {
  const { source, dest, latest } = pair;
  const look = lookOf(pair);
  const cells = [
    ["badge", outcomeBadge(look)],
    ["what", element("a", { href: addressOf({ view: "pair", source, dest }) }, element("b", { class: "test" }, entryOf(pair)), ` ${source} → ${dest}`)],
    ["outcome", element("p", { class: "reason" }, whyOf(pair, now)), latest && doubt(latest.verdict, [], now)],
    ["delivery", deliveryOf(pair)],
    ["result", ...(latest ? [element("a", { href: hrefOf({ run: latest.run }) }, latest.summary ?? "no figure"), " ", ticking("age", Date.parse(latest.ends_at), now)] : ["none"])],
  ];
  return element("tr", { class: LOOKS[look].kind, role: "row" }, cells.map(([kind, ...content]) => element("td", { class: kind, role: "cell" }, content.flat().filter(Boolean))));
}

const whyOf = ({ outcome }, now) => readable(outcome?.reason ?? "", now);

const deliveryOf = ({ due, delivered }) => (due ? `${delivered} of ${due}` : "nothing due");

/** The matrix of an entry of the mesh file. */
class EntryPicture {
  #name;
  #now;
  /** @type {Matrix | null} */
  #matrix = null;
  #figure = "";
  /** @type {any[]} */
  #pairs = [];
  /** @type {Map<string, any>} */
  #at = new Map();
  #heading = element("div", { class: "heading" });
  #hint = element("p", { class: "hint" });
  #detail = element("div", { class: "detail", tabindex: "-1", hidden: true });
  /** @type {string | null} the key of the pair whose detail is shown */
  #opened = null;
  section = element("section", { class: "found" }, this.#heading);

  constructor(name, now) {
    this.#name = name;
    this.#now = now;
  }

  show(pairs) {
    this.#pairs = pairs;
    this.#at = new Map(pairs.map((pair) => [`${pair.source} ${pair.dest}`, pair]));
    const names = figuresOf(pairs.flatMap(({ latest }) => latest ?? []));
    if (!names.includes(this.#figure)) this.#figure = names[0] ?? "";
    this.#drawHeading(names);
    const content = this.#content();
    if (this.#matrix) this.#matrix.show(content);
    else {
      this.#matrix = new Matrix(content);
      this.section.append(this.#matrix.box, this.#detail, this.#hint);
    }
    this.#hint.textContent = thresholdSentences(pairs, names, this.#figure);
    if (this.#opened) this.#drawDetail();
  }

  close() {
    this.#matrix?.close();
    this.section.remove();
  }

  #drawHeading(names) {
    const [{ test }] = this.#pairs;
    const signature = JSON.stringify([test, names, this.#figure]);
    if (this.#heading.dataset.signature === signature) return;
    this.#heading.dataset.signature = signature;
    const options = names.map((each) => element("option", { value: each, selected: each === this.#figure }, wordsOf(each)));
    const choose = ({ target }) => {
      this.#figure = target.value;
      this.show(this.#pairs);
      this.#heading.querySelector("select")?.focus();
    };
    const select = names.length > 1 ? element("label", {}, "Figure ", element("select", { id: `figure-${this.#name}`, change: choose }, options)) : null;
    const title = element("h3", {}, element("b", { class: "test" }, this.#name), this.#name === test ? null : ` (${test})`);
    this.#heading.replaceChildren(...[title, select].filter((each) => each !== null));
  }

  #content() {
    const alone = this.#pairs.every(({ source, dest }) => source === dest);
    const rows = endsOf(this.#pairs, "source");
    const columns = alone ? ["on itself"] : endsOf(this.#pairs, "dest");
    const pairAt = (row, column) => this.#at.get(`${rows[row]} ${alone ? rows[row] : columns[column]}`);
    // Squares are made when they are first seen.
    const cells = rows.map(() => new Array(columns.length));
    return {
      rows,
      columns,
      cellAt: (row, column) => {
        if (cells[row][column] === undefined) {
          const pair = pairAt(row, column);
          cells[row][column] = pair ? this.#cellOf(pair) : null;
        }
        return cells[row][column];
      },
      tell: (row, column) => this.#tell(pairAt(row, column)),
      open: (row, column) => {
        this.#opened = pairAt(row, column).key;
        this.#drawDetail();
        this.#detail.querySelector("a")?.focus({ preventScroll: true });
      },
      label: `Matrix of ${this.#name}, ${rows.length} by ${columns.length}, rows are sources. Arrow keys move from pair to pair, Enter opens one. The list below has what is not good.`,
    };
  }

  #cellOf(pair) {
    const value = pair.latest?.metrics.find(({ name }) => name === this.#figure);
    return { look: lookOf(pair), text: value ? valueText(value.value, value.unit) : "", isDoubtful: Boolean(pair.latest?.verdict) && pair.latest.verdict !== "clean" };
  }

  #tell(pair) {
    const now = this.#now();
    const { source, dest, latest, causes } = pair;
    const back = source === dest ? null : this.#at.get(`${dest} ${source}`);
    const why = whyOf(pair, now);
    const metrics = (latest?.metrics ?? []).slice(0, FIGURES_MOST);
    const missing = pair.due > pair.delivered ? causes.slice(0, CAUSES_MOST).map(({ cause, count }) => element("li", {}, `${count} × ${cause}`)) : [];
    return [
      element("p", {}, outcomeBadge(lookOf(pair)), " ", element("b", {}, source === dest ? source : `${source} → ${dest}`), latest ? [" ", ticking("age", Date.parse(latest.ends_at), now)] : " no result yet"),
      why ? element("p", { class: "reason" }, why) : null,
      metrics.length ? element("ul", { class: "figures" }, metrics.map((metric) => element("li", {}, figureText(metric)))) : null,
      latest ? doubt(latest.verdict, [], now) : null,
      element("p", {}, pair.due ? `${deliveryOf(pair)} delivered in 24 h` : "nothing due in 24 h"),
      missing.length ? element("ul", {}, missing) : null,
      back ? element("p", {}, outcomeBadge(lookOf(back)), ` ${dest} → ${source} `, this.#cellOf(back).text) : null,
    ].filter((each) => each !== null);
  }

  #drawDetail() {
    const pair = this.#pairs.find(({ key }) => key === this.#opened);
    this.#detail.hidden = !pair;
    if (!pair) return;
    const { source, dest, latest, key } = pair;
    const close = () => {
      this.#opened = null;
      this.#detail.hidden = true;
      this.#matrix?.focus();
    };
    const links = element(
      "p",
      { class: "actions" },
      element("a", { href: addressOf({ view: "pair", source, dest }) }, "over time, both ways"),
      latest ? element("a", { href: hrefOf({ run: latest.run }) }, "its latest run") : null,
      element("a", { href: addressOf({ view: "tasks", q: key }) }, "its task"),
      element("button", { type: "button", class: "close", "aria-label": "Close", click: close }, icon("close")),
    );
    const active = document.activeElement instanceof HTMLElement && this.#detail.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    this.#detail.replaceChildren(links, ...this.#tell(pair));
    if (active) this.#detail.querySelector(`a[href="${CSS.escape(active)}"]`)?.focus();
  }
}

const endsOf = (pairs, end) => [...new Set(pairs.map((pair) => pair[end]))].sort((one, other) => one.localeCompare(other, "en", { numeric: true }));

// Pairs of one entry have the same thresholds, unless the file was changed and not applied to all.
function thresholdSentences(pairs, names, shown) {
  const written = pairs.find(({ thresholds }) => Object.keys(thresholds).length)?.thresholds ?? {};
  const unitOf = (name) => pairs.flatMap(({ latest }) => latest?.metrics ?? []).find((metric) => metric.name === name.split(".")[0])?.unit ?? "1";
  const told = Object.entries(written).map(([name, threshold]) => `${wordsOf(name)} ${thresholdWords(threshold, unitOf(name))}`);
  if (told.length) return `By the mesh file, ${told.join("; ")}.`;
  return shown && names.length ? "The mesh file has no thresholds: what has a result is good, unless nothing arrived." : "";
}

// From which values on a figure is fair, or bad: "is fair from 300 ms on, and bad from 800 ms on".
function thresholdWords({ fair, bad }, unit) {
  const way = bad > fair ? "on" : "down";
  return `is fair from ${valueText(fair, unit)} ${way}, and bad from ${valueText(bad, unit)} ${way}`;
}
