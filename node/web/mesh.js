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
// Of so many pairs that are not good the list has the detail; those of other pairs are asked for when they are looked at.
const DETAILED = 20;
/** The judgements of a matrix of the API, by letter; capitals are doubtful. */
const LETTERS = { g: "good", f: "fair", b: "bad", n: "no-answer", x: "failed", m: "missed", p: "not-planned", s: "stale", u: "unknown" };
// Maximum number of figures and of causes that are told of a square.
const FIGURES_MOST = 8;
const CAUSES_MOST = 3;

/**
 * Fetches the pairs of a mesh, and shows them. Those of a large one are fetched in few words, a letter each, and then the detail of
 * the worst.
 * @param {any} api
 * @param {string} name
 * @param {boolean} isLarge whether it was large before
 * @param {(pairs: any[], isLarge: boolean) => void} show
 */
export async function fetchMesh(api, name, isLarge, show) {
  if (!isLarge) {
    const page = await api.get(`/v1/meshes/${name}/pairs?limit=500`);
    if (page.next === null) return show(page.items.map(whole), false);
  }
  const { entries } = await api.get(`/v1/meshes/${name}/matrix`);
  const pairs = entries.flatMap(pairsOf);
  show(pairs, true);
  const worst = worstOf(pairs).slice(0, DETAILED);
  const told = new Map((await fetchPairs(api, name, worst.map(({ key }) => key))).map((pair) => [pair.key, pair]));
  for (const pair of worst) Object.assign(pair, told.get(pair.key));
  return show(pairs, true);
}

/** Fetches all that is known of some pairs of a mesh. */
export async function fetchPairs(api, name, keys) {
  if (!keys.length) return [];
  const page = await api.get(`/v1/meshes/${name}/pairs?key=${keys.map(encodeURIComponent).join()}`);
  return page.items.map(whole);
}

// The list of pairs finds them by their ids.
const whole = (pair) => ({ ...pair, id: pair.key, isWhole: true });

/** Returns the pairs of an entry of a matrix of the API, each as far as its letter tells. */
function pairsOf({ name, test, sources, dests, rows }) {
  const pairs = [];
  for (const [row, letters] of rows.entries()) {
    for (let column = 0; column < letters.length; column++) {
      const letter = letters[column];
      if (letter === ".") continue;
      const small = letter.toLowerCase();
      const key = `${name}/${sources[row]}/${dests[column]}`;
      const outcome = { judgement: LETTERS[small] ?? "not-planned", reason: null };
      pairs.push({ id: key, key, test, source: sources[row], dest: dests[column], state: small === "r" ? "refused" : "active", outcome, isDoubtful: letter !== small, latest: null, thresholds: {} });
    }
  }
  return pairs;
}

/** Returns the pairs that are not good, the worst first. */
function worstOf(pairs) {
  const ranked = pairs.map((pair) => ({ pair, look: lookOf(pair) })).filter(({ look }) => look !== "good");
  ranked.sort((one, other) => badnessOf(one.look) - badnessOf(other.look) || (one.pair.key < other.pair.key ? -1 : 1));
  return ranked.map(({ pair }) => pair);
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
  #more = element("p", { class: "hint" });
  #ask;
  /** @type {any[]} */
  #pairs = [];
  #scheme = matchMedia("(prefers-color-scheme: dark)");
  #recolour = () => this.#drawLegend();
  /** @type {Map<string, EntryPicture>} */
  #entries = new Map();

  /** @param {Element} box @param {() => number} now @param {(keys: string[]) => Promise<any[]>} ask fetches all of some pairs */
  constructor(box, now, ask) {
    this.#box = box;
    this.#now = now;
    this.#ask = ask;
    this.#scheme.addEventListener("change", this.#recolour);
  }

  /** Shows pairs. */
  show(pairs) {
    if (!this.#matrices.isConnected) {
      const heading = element("h3", {}, "What is not good, the worst first");
      this.#box.replaceChildren(this.#legend, this.#matrices, element("section", { class: "found" }, heading, this.#list, this.#more));
    }
    const entries = grouped(pairs);
    for (const [name, picture] of this.#entries) {
      if (entries.has(name)) continue;
      picture.close();
      this.#entries.delete(name);
    }
    for (const name of [...entries.keys()].sort()) {
      const known = this.#entries.get(name) ?? new EntryPicture(name, this.#now, this.#ask);
      this.#entries.set(name, known);
      if (!known.section.isConnected) this.#matrices.append(known.section);
      known.show(entries.get(name));
    }
    if (!pairs.length) this.#matrices.replaceChildren(element("p", { class: "empty" }, "No pair has measured yet."));
    this.#pairs = pairs;
    this.#drawLegend();
    this.#drawList(pairs);
  }

  #drawLegend() {
    const pairs = this.#pairs;
    const counts = new Map();
    for (const pair of pairs) counts.set(lookOf(pair), (counts.get(lookOf(pair)) ?? 0) + 1);
    const doubtful = pairs.filter(isDoubtful).length;
    const colours = coloursOf(this.#box);
    const looks = Object.keys(LOOKS).filter((look) => counts.has(look));
    const items = looks.map((look) => element("li", {}, swatch(look, colours), element("b", {}, String(counts.get(look))), LOOKS[look].word));
    const doubts = element("li", {}, swatch("good", colours, { isDoubtful: true }), element("b", {}, String(doubtful)), "doubtful");
    this.#legend.replaceChildren(...items, ...(doubtful ? [doubts] : []));
  }

  #drawList(pairs) {
    const now = this.#now();
    const wrong = worstOf(pairs);
    const told = wrong.filter(({ isWhole }) => isWhole);
    if (wrong.length && !told.length) return; // their detail is under way
    this.#more.textContent = told.length < wrong.length ? `These are ${told.length} of ${wrong.length}; the squares have the others.` : "";
    drawTable(this.#list, told, {
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

/** How long a square is rested on before all of its pair is asked for. */
const REST_MS = 120;

/** The looks of pairs whose newest slot was measured. */
const MEASURED = new Set(["good", "fair", "bad", "no-answer"]);

const isDoubtful = ({ isDoubtful: told, latest }) => Boolean(told || (latest?.verdict && latest.verdict !== "clean"));

/** The matrix of an entry of the mesh file. */
class EntryPicture {
  #name;
  #now;
  #ask;
  #asking = "";
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

  constructor(name, now, ask) {
    this.#name = name;
    this.#now = now;
    this.#ask = ask;
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
    const opened = pairs.find(({ key }) => key === this.#opened);
    if (opened) this.#fill(opened);
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
      tell: (row, column) => {
        this.#fill(pairAt(row, column));
        return this.#tell(pairAt(row, column));
      },
      open: (row, column) => {
        this.#opened = pairAt(row, column).key;
        this.#drawDetail();
        this.#detail.querySelector("a")?.focus({ preventScroll: true });
      },
      label: `Matrix of ${this.#name}, ${rows.length} by ${columns.length}, rows are sources. Arrow keys move from pair to pair, Enter opens one. The list below has what is not good.`,
    };
  }

  // Asks for all of a pair of which only a letter is known, once somebody rests on it.
  async #fill(pair) {
    this.#asking = pair.key;
    if (pair.isWhole) return;
    await new Promise((resolve) => setTimeout(resolve, REST_MS));
    if (this.#asking !== pair.key || pair.isWhole || !this.section.isConnected) return;
    const [found] = await this.#ask([pair.key]).catch(() => []);
    if (!found) return;
    Object.assign(pair, found);
    this.#matrix?.show(this.#content());
    if (this.#opened === pair.key) this.#drawDetail();
  }

  // A value of a run before the newest one is none of now.
  #cellOf(pair) {
    const look = lookOf(pair);
    const value = MEASURED.has(look) ? pair.latest?.metrics.find(({ name }) => name === this.#figure) : null;
    return { look, text: value ? valueText(value.value, value.unit) : "", isDoubtful: isDoubtful(pair) };
  }

  #tell(pair) {
    const now = this.#now();
    const { source, dest, latest, causes } = pair;
    const back = source === dest ? null : this.#at.get(`${dest} ${source}`);
    const why = whyOf(pair, now);
    const metrics = (latest?.metrics ?? []).slice(0, FIGURES_MOST);
    const missing = pair.due > pair.delivered ? causes.slice(0, CAUSES_MOST).map(({ cause, count }) => element("li", {}, `${count} × ${cause}`)) : [];
    return [
      element("p", {}, outcomeBadge(lookOf(pair)), " ", element("b", {}, source === dest ? source : `${source} → ${dest}`), latest ? [" ", ticking("age", Date.parse(latest.ends_at), now)] : pair.isWhole ? " no result yet" : " …"),
      why ? element("p", { class: "reason" }, why) : null,
      metrics.length ? element("ul", { class: "figures" }, metrics.map((metric) => element("li", {}, figureText(metric)))) : null,
      latest ? doubt(latest.verdict, [], now) : null,
      pair.isWhole ? element("p", {}, pair.due ? `${deliveryOf(pair)} delivered in 24 h` : "nothing due in 24 h") : null,
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
function thresholdSentences(every, names, shown) {
  const pairs = every.filter(({ isWhole }) => isWhole);
  if (!pairs.length) return "";
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
