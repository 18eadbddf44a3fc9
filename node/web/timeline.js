// The timeline: past and future runs of this node, one lane per scheduling class.

import { byId, element } from "./dom.js";
import { headlineOf, runBadge, timeElement } from "./parts.js";
import { go } from "./place.js";
import { axisTicks, boxAt, CLASS_LANES, KINDS, layOut, LANES } from "./timeline-layout.js";
import { paint, readTheme } from "./timeline-paint.js";
import { readable, shortTimeOf, spell, stateOf, timeOf } from "./words.js";

const SPAN_KEY = "parley-ahead";
const AHEAD = 6 * 3_600_000;
// The ratio of past to future: one hour back if six hours ahead are shown.
const PAST = 1 / 6;
const NARROW = 620;
// The width of the names of lanes, in pixels; longer names are shortened.
const NAMES_LEAST = 124;
const NAMES_MOST = 200;
const NAMES_PER_CHARACTER = 7.6;
const REACH_MOUSE = 3;
const REACH_FINGER = 14;

/** The timeline of the overview: some hours ahead, and a sixth of it back. */
export class Timeline {
  #model;
  #onSpan;
  #picture;
  #ahead = Number(sessionStorage.getItem(SPAN_KEY)) || AHEAD;
  #task = null;

  constructor(model, onSpan) {
    this.#model = model;
    this.#onSpan = onSpan;
    const parts = { stage: byId("stage"), canvas: byId("canvas"), tip: byId("tip") };
    this.#picture = new Picture(parts, (now) => this.#look(now), () => model.now());
    byId("spans").addEventListener("click", ({ target }) => this.#setSpan(target.dataset.ahead));
    this.#markSpan();
  }

  /** Returns the span that it shows. */
  span(now = this.#model.now()) {
    return { from: now - this.#ahead * PAST, to: now + this.#ahead };
  }

  show(task) {
    this.#task = task;
    this.draw();
  }

  draw() {
    this.#picture.draw();
  }

  #look(now) {
    const { from, to } = this.span(now);
    const entries = this.#model.between(from, to, this.#task);
    const reserved = this.#model.reservedBetween(from, to);
    const words = (lanes) => this.#words(lanes);
    // What is summed up is of all tasks.
    const dense = this.#task ? new Map() : this.#model.dense;
    return { from, to, entries, reserved, dense, lanes: CLASS_LANES, words };
  }

  #words(lanes) {
    const runs = lanes.filter(({ name }) => LANES.includes(name));
    const counts = runs.map(({ name, count }) => `${count ?? this.#model.laneCount(name)} ${name}`).join(", ");
    const closures = lanes.length > runs.length ? lanes[0].count : 0;
    const reserved = closures ? `, ${closures} reserved time${closures > 1 ? "s" : ""}` : "";
    const span = `${spell(this.#ahead * PAST)} back and ${spell(this.#ahead)} ahead`;
    return `Timeline, ${span}: ${counts} runs${reserved}`;
  }

  #setSpan(seconds) {
    if (!seconds) return;
    this.#ahead = Number(seconds) * 1000;
    sessionStorage.setItem(SPAN_KEY, String(this.#ahead));
    this.#markSpan();
    this.draw();
    this.#onSpan();
  }

  #markSpan() {
    for (const button of byId("spans").children) {
      button.setAttribute("aria-pressed", String(Number(button.dataset.ahead) * 1000 === this.#ahead));
    }
  }
}

/** Runs over time on a canvas, with a tip for the run that is pointed at, and keys that walk from run to run. */
export class Picture {
  #parts;
  #look;
  #now;
  #gone = new AbortController();
  /** @type {any} */
  #scene = null;
  /** @type {any} */
  #theme = null;
  #chosen = null;
  #marked = null;

  /**
   * Draws into `canvas` inside `stage`, and tells runs in `tip`. `look(now)` returns the span from `from` to
   * `to`, its `entries`, `reserved` and `dense` lanes, the `lanes` to draw, and the `words` that describe it.
   */
  constructor({ stage, canvas, tip }, look, now) {
    this.#parts = { stage, canvas, tip };
    this.#look = look;
    this.#now = now;
    this.#listen();
  }

  /** Computes and paints everything again, which is cheap enough for once a second. */
  draw() {
    const { stage, canvas } = this.#parts;
    const { clientWidth: width } = stage;
    if (!width) return;
    const now = this.#now();
    const density = window.devicePixelRatio || 1;
    this.#theme ??= readTheme(canvas, density);
    const { from, to, entries, reserved, dense, lanes: wanted, words, empty = "No run in this span" } = this.#look(now);
    const view = { from, to, ...this.#frame(width, wanted) };
    const { lanes, boxes, bottom } = layOut(entries, reserved, dense, view, wanted);
    const height = Math.ceil(bottom + 2);
    this.#resize(width, height, density);
    const ticks = axisTicks(view, 72 * this.#theme.size);
    const x = view.left + ((view.right - view.left) * (now - from)) / (to - from);
    const scene = { empty, lanes, boxes, bottom, view, ticks, width, height, density, now: x, nowText: timeOf(now) };
    this.#scene = { ...scene, chosen: this.#stillChosen(boxes), marked: this.#marked };
    paint(canvas, this.#scene, this.#theme);
    const label = words(lanes);
    if (canvas.getAttribute("aria-label") !== label) canvas.setAttribute("aria-label", label);
  }

  /** Returns the span that is drawn, and where on the canvas. */
  get view() {
    return this.#scene.view;
  }

  /** Returns the run under the pointer, or null. */
  runAt(event) {
    return this.#under(event)?.entry ?? null;
  }

  /** Returns the run that is chosen, or null. */
  chosenRun() {
    return this.#scene?.chosen?.entry ?? null;
  }

  /** Marks a span from one instant to another, or none. */
  mark(span) {
    this.#marked = span;
    this.#choose(null);
  }

  /** Returns the instant at a place on the canvas. */
  instantAt(x) {
    const { left, right, from, to } = this.#scene.view;
    return from + ((x - left) / (right - left)) * (to - from);
  }

  #frame(width, lanes) {
    const narrow = width < NARROW;
    const { size } = this.#theme;
    const longest = Math.max(...lanes.map(({ name }) => name.length));
    const names = Math.min(NAMES_MOST, Math.max(NAMES_LEAST, NAMES_PER_CHARACTER * longest));
    return { left: narrow ? 0 : names * size, right: width, top: 28 * size, caption: narrow ? 17 * size : 0 };
  }

  #resize(width, height, density) {
    const [wide, high] = [Math.round(width * density), Math.round(height * density)];
    if (this.#parts.canvas.width === wide && this.#parts.canvas.height === high) return;
    this.#parts.canvas.width = wide;
    this.#parts.canvas.height = high;
    this.#parts.canvas.style.height = `${height}px`;
  }

  #listen() {
    const { stage, canvas } = this.#parts;
    const { signal } = this.#gone;
    const on = (name, action) => canvas.addEventListener(name, action, { signal });
    on("pointermove", (event) => this.#point(event));
    on("pointerleave", () => this.#choose(null));
    on("click", (event) => this.#open(this.#under(event)));
    on("keydown", (event) => this.#key(event));
    on("focus", () => canvas.matches(":focus-visible") && this.#step(0));
    on("blur", () => this.#choose(null));
    // The letters grow with the screen, too.
    const forget = () => {
      this.#theme = null;
      this.draw();
    };
    const observer = new ResizeObserver(forget);
    observer.observe(stage);
    signal.addEventListener("abort", () => observer.disconnect());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", forget, { signal });
  }

  /** Lets go of the page. */
  close() {
    this.#gone.abort();
  }

  /** Forgets the run that is pointed at, as when the picture moves under the pointer. */
  forget() {
    this.#choose(null);
  }

  #under(event) {
    const reach = event.pointerType === "touch" ? REACH_FINGER : REACH_MOUSE;
    return boxAt(this.#scene?.boxes ?? [], event.offsetX, event.offsetY, reach);
  }

  #point(event) {
    const box = this.#under(event);
    this.#parts.canvas.classList.toggle("over", box !== null);
    if (keyOf(box) !== this.#chosen) this.#choose(box);
  }

  #choose(box) {
    this.#chosen = keyOf(box);
    this.#parts.tip.hidden = box === null;
    if (box) {
      this.#parts.tip.replaceChildren(...this.#tipOf(box));
      this.#placeTip(box);
    }
    this.draw();
  }

  #stillChosen(boxes) {
    return this.#chosen === null ? null : boxes.find((box) => keyOf(box) === this.#chosen);
  }

  // Places the tip below the box, but inside the stage.
  #placeTip(box) {
    const { width } = this.#scene;
    const wide = this.#parts.tip.offsetWidth;
    const left = Math.min(Math.max(0, box.x + box.width / 2 - wide / 2), width - wide);
    this.#parts.tip.style.left = `${left}px`;
    this.#parts.tip.style.top = `${box.y + box.height + 8}px`;
  }

  #tipOf(box) {
    if (box.closure) return closureTip(box.closure, this.#now());
    return box.entry ? this.#runTip(box.entry) : columnTip(box, this.#now());
  }

  #runTip(entry) {
    const now = this.#now();
    const times = [timeElement(entry.starts, now), " – ", timeElement(entry.ends, now)];
    const sentence = entry.reason ? readable(entry.reason, now) : entry.summary;
    return [
      element("p", {}, ...headlineOf(entry)),
      element("p", {}, runBadge(entry), " ", ...times),
      sentence && element("p", { class: entry.reason ? "reason" : "summary" }, sentence),
    ].filter(Boolean);
  }

  #key(event) {
    const moves = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (event.key in moves) this.#step(moves[event.key]);
    else if (event.key === "Enter" || event.key === " ") this.#open(this.#scene?.chosen);
    else if (event.key === "Escape") this.#choose(null);
    else return;
    event.preventDefault();
  }

  // Moves from box to box in the order of time; the first step selects the one nearest to now.
  #step(by) {
    const boxes = [...(this.#scene?.boxes ?? [])].sort((one, other) => one.x - other.x || one.y - other.y);
    if (!boxes.length) return;
    const at = boxes.findIndex((box) => keyOf(box) === this.#chosen);
    const away = (box) => Math.abs(box.x - this.#scene.now);
    const nearest = boxes.reduce((best, box) => (away(box) < away(best) ? box : best));
    this.#choose(at < 0 ? nearest : boxes[Math.min(boxes.length - 1, Math.max(0, at + by))]);
  }

  #open(box) {
    if (!box || box.closure) return;
    if (box.entry) go({ run: box.entry.id });
    else if (box.entries?.length === 1) go({ run: box.entries[0].id });
    else go({ list: "span", lane: box.lane, from: Math.round(box.from), to: Math.round(box.to) });
  }
}

function keyOf(box) {
  if (!box) return null;
  if (box.closure) return `${box.closure.id} ${box.closure.starts}`;
  return box.entry ? box.entry.id : `${box.lane} ${box.from}`;
}

function closureTip({ id, kind, name, owner, starts, ends }, now) {
  return [
    element("p", {}, element("b", {}, `${kind} ${name}`), ` by ${owner}`),
    element("p", {}, "reserved ", timeElement(starts, now), " – ", timeElement(ends, now)),
    element("p", {}, `reservation ${id}`),
  ];
}

const WORDS = { done: "finished", future: "planned", waiting: "waiting", gone: "cancelled or displaced" };

function columnTip(box, now) {
  const counts = [...KINDS].reverse().filter((kind) => box.counts[kind]);
  const words = counts.map((kind) => `${box.counts[kind]} ${WORDS[kind] ?? stateOf(kind).word}`);
  const busy = box.busy === undefined ? "" : `; ${Math.round(100 * box.busy)} % of the time occupied`;
  const reason = box.entries?.find(({ kind }) => kind === "failed")?.reason;
  return [
    element("p", {}, element("b", {}, spanTitle(box.lane, box.from, box.to, box.total))),
    element("p", {}, words.join(", ") + busy),
    reason && element("p", { class: "reason" }, readable(reason, now)),
  ].filter(Boolean);
}

/** "12 normal runs, 14:02 – 14:06". */
export function spanTitle(lane, from, to, count) {
  const short = to - from < 120_000 ? timeOf : shortTimeOf;
  return `${count} ${LANES.includes(lane) ? lane : ""} runs, ${short(from)} – ${short(to)}`;
}
