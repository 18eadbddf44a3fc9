// The timeline: past and future runs of this node, one lane per scheduling class.

import { byId, element } from "./dom.js";
import { headlineOf, stateBadge, timeElement } from "./parts.js";
import { go } from "./place.js";
import { axisTicks, boxAt, KINDS, layOut, LANES } from "./timeline-layout.js";
import { paint, readTheme } from "./timeline-paint.js";
import { readable, shortTimeOf, spell, stateOf, timeOf } from "./words.js";

const SPAN_KEY = "parley-ahead";
const AHEAD = 6 * 3_600_000;
// The ratio of past to future: one hour back if six hours ahead are shown.
const PAST = 1 / 6;
const NARROW = 620;
const REACH_MOUSE = 3;
const REACH_FINGER = 14;

export class Timeline {
  #model;
  #canvas = byId("canvas");
  #tip = byId("tip");
  #onSpan;
  /** @type {any} */
  #scene = null;
  /** @type {any} */
  #theme = null;
  #chosen = null;
  #ahead = Number(sessionStorage.getItem(SPAN_KEY)) || AHEAD;
  #task = null;

  constructor(model, onSpan) {
    this.#model = model;
    this.#onSpan = onSpan;
    this.#listen();
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

  /** Computes and paints everything again, which is cheap enough for once a second. */
  draw() {
    const now = this.#model.now();
    const { clientWidth: width } = byId("stage");
    if (!width) return;
    const density = window.devicePixelRatio || 1;
    this.#theme ??= readTheme(this.#canvas, density);
    const view = { ...this.span(now), ...this.#frame(width) };
    const entries = this.#model.between(view.from, view.to, this.#task);
    const reserved = this.#model.reservedBetween(view.from, view.to);
    const { lanes, boxes, bottom } = layOut(entries, reserved, this.#model.dense, view);
    const height = Math.ceil(bottom + 2);
    this.#resize(width, height, density);
    const ticks = axisTicks(view, 72 * this.#theme.size);
    const x = view.left + ((view.right - view.left) * (now - view.from)) / (view.to - view.from);
    const scene = { lanes, boxes, bottom, view, ticks, width, height, density, now: x, nowText: timeOf(now) };
    this.#scene = { ...scene, chosen: this.#stillChosen(boxes) };
    paint(this.#canvas, this.#scene, this.#theme);
    this.#describe(lanes);
  }

  #frame(width) {
    const narrow = width < NARROW;
    const { size } = this.#theme;
    return { left: narrow ? 0 : 124 * size, right: width, top: 28 * size, caption: narrow ? 17 * size : 0 };
  }

  #resize(width, height, density) {
    const [wide, high] = [Math.round(width * density), Math.round(height * density)];
    if (this.#canvas.width === wide && this.#canvas.height === high) return;
    this.#canvas.width = wide;
    this.#canvas.height = high;
    this.#canvas.style.height = `${height}px`;
  }

  #describe(lanes) {
    const runs = lanes.filter(({ name }) => LANES.includes(name));
    const counts = runs.map(({ name, count }) => `${count ?? this.#model.laneCount(name)} ${name}`).join(", ");
    const closures = lanes.length > runs.length ? lanes[0].count : 0;
    const reserved = closures ? `, ${closures} reserved time${closures > 1 ? "s" : ""}` : "";
    const span = `${spell(this.#ahead * PAST)} back and ${spell(this.#ahead)} ahead`;
    const words = `Timeline, ${span}: ${counts} runs${reserved}`;
    if (this.#canvas.getAttribute("aria-label") !== words) this.#canvas.setAttribute("aria-label", words);
  }

  #listen() {
    const canvas = this.#canvas;
    canvas.addEventListener("pointermove", (event) => this.#point(event));
    canvas.addEventListener("pointerleave", () => this.#choose(null));
    canvas.addEventListener("click", (event) => this.#open(this.#under(event)));
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("focus", () => canvas.matches(":focus-visible") && this.#step(0));
    canvas.addEventListener("blur", () => this.#choose(null));
    new ResizeObserver(() => this.draw()).observe(byId("stage"));
    const forget = () => {
      this.#theme = null;
      this.draw();
    };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", forget);
    byId("spans").addEventListener("click", ({ target }) => this.#setSpan(target.dataset.ahead));
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

  #under(event) {
    const reach = event.pointerType === "touch" ? REACH_FINGER : REACH_MOUSE;
    return boxAt(this.#scene?.boxes ?? [], event.offsetX, event.offsetY, reach);
  }

  #point(event) {
    const box = this.#under(event);
    this.#canvas.classList.toggle("over", box !== null);
    if (keyOf(box) !== this.#chosen) this.#choose(box);
  }

  #choose(box) {
    this.#chosen = keyOf(box);
    this.#tip.hidden = box === null;
    if (box) {
      this.#tip.replaceChildren(...this.#tipOf(box));
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
    const wide = this.#tip.offsetWidth;
    const left = Math.min(Math.max(0, box.x + box.width / 2 - wide / 2), width - wide);
    this.#tip.style.left = `${left}px`;
    this.#tip.style.top = `${box.y + box.height + 8}px`;
  }

  #tipOf(box) {
    if (box.closure) return closureTip(box.closure, this.#model.now());
    return box.entry ? this.#runTip(box.entry) : columnTip(box, this.#model.now());
  }

  #runTip(entry) {
    const now = this.#model.now();
    const times = [timeElement(entry.starts, now), " – ", timeElement(entry.ends, now)];
    const sentence = entry.reason ? readable(entry.reason, now) : entry.summary;
    return [
      element("p", {}, ...headlineOf(entry)),
      element("p", {}, stateBadge(entry.state), " ", ...times),
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

const WORDS = { done: "finished", future: "planned", waiting: "waiting for time", gone: "cancelled or displaced" };

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
