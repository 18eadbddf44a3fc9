// The view of the timeline: five minutes to seven days, at any date, for this node or for each host.

import { element } from "./dom.js";
import { ENTRY_FIELDS } from "./lists.js";
import { Model } from "./model.js";
import { adjust, place } from "./place.js";
import { Picture } from "./timeline.js";
import { CLASS_LANES, hostLanes, LANES, pieceOf } from "./timeline-layout.js";
import { setCall } from "./view-frame.js";
import { NOT_OFFERED, WhatIf, WORDS } from "./what-if.js";
import { momentOf } from "./words.js";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const SHORTEST = 5 * MINUTE;
const LONGEST = 7 * DAY;
const SPANS = { "5 min": 5 * MINUTE, "30 min": 30 * MINUTE, "2 h": 2 * HOUR, "6 h": 6 * HOUR, "24 h": DAY, "3 d": 3 * DAY, "7 d": 7 * DAY };
// Lanes of hosts are made of single runs, so at most so many are asked for.
const RUNS_MOST = 6_000;
const PAGE = 500;
// The share of the span that is past, while it follows the clock.
const PAST = 1 / 6;

export function open(box, context) {
  const { api, model, tools } = context;
  const stage = element("div", { class: "stage" });
  const canvas = element("canvas", { tabindex: "0", role: "application", "aria-label": "Timeline of runs", "aria-describedby": "timeline-keys timeline-asks" });
  const tip = element("div", { class: "tip", role: "status", hidden: true });
  const keys = "A drag moves the span, Ctrl and the wheel zoom. Keys: + and − zoom, Page Up and Page Down move the span, Home follows the clock, arrows walk from run to run, Enter opens one.";
  const note = element("p", { class: "hint" });
  stage.append(canvas, tip);
  const asks = element("p", { class: "hint", id: "timeline-asks" });
  box.replaceChildren(stage, element("p", { class: "hint", id: "timeline-keys" }, keys), asks, note);
  // Its own runs, because the overview keeps those of another span.
  const own = new Model();
  let hosts = [];
  let whole = true;
  let held = false;
  let asking = true;
  let shown = spanOf(place(), model.now());
  const picture = new Picture({ stage, canvas, tip }, look, () => model.now());
  const whatIf = new WhatIf(context, picture);
  const offer = () => {
    asks.textContent = context.caller() === null ? "" : whatIf.offered ? WORDS : NOT_OFFERED;
  };
  offer();
  const controls = makeControls();
  tools.replaceChildren(...controls.elements);

  function look(now) {
    if (!place().at && !held) shown = spanOf(place(), now);
    const { from, to } = shown;
    const entries = own.between(from, to);
    const lanes = byHost() ? hostLanes(hosts, entries) : CLASS_LANES;
    const dense = byHost() ? new Map() : own.dense;
    return { from, to, entries, reserved: own.reservedBetween(from, to), dense, lanes: lanes.length ? lanes : CLASS_LANES, words, empty: asking ? "Asking the node …" : undefined };
  }
  const words = (lanes) => `Timeline, ${momentOf(shown.from, model.now())} to ${momentOf(shown.to, model.now())}: ${lanes.map(({ name, count }) => `${count ?? own.laneCount(name)} ${name}`).join(", ")} runs`;

  async function fetch() {
    shown = spanOf(place(), model.now());
    controls.mark();
    picture.draw();
    const asked = { ...shown };
    const [sums, nodes] = await Promise.all([api.get(schedulePath(asked, { pieces: 1 })), byHost() ? api.get("/v1/nodes") : null]);
    const dense = own.takeLanes(sums.buckets);
    own.reserve(sums.reserved);
    setCall(schedulePath(asked, { pieces: 0 }));
    whole = true;
    await (byHost() ? fetchSingly(asked, LANES) : Promise.all([fetchSingly(asked, LANES.filter((lane) => !dense.includes(lane))), dense.length ? fetchPieces(asked, dense) : own.takePieces([], 1)]));
    if (nodes) hosts = hostsOf(nodes.items, own.between(asked.from, asked.to));
    asking = false;
    note.textContent = whole ? "" : `These are the first ${RUNS_MOST} runs of the span; a shorter span has all of its runs.`;
    picture.draw();
  }

  async function fetchSingly(asked, lanes) {
    if (!lanes.length) return;
    const path = schedulePath(asked, { lanes });
    const items = [];
    let next = null;
    do {
      const page = await api.get(next ? `${path}&cursor=${next}` : path);
      items.push(...page.items);
      next = page.next;
    } while (next && items.length < RUNS_MOST);
    whole &&= next === null;
    for (const { id, lane } of own.entries.values()) if (lanes.includes(lane)) own.entries.delete(id);
    own.merge(items);
  }

  async function fetchPieces({ from, to }, lanes) {
    const length = pieceOf({ from, to });
    const first = Math.floor(from / length) * length;
    const pieces = Math.ceil((to - first) / length);
    const path = schedulePath({ from: first, to: first + pieces * length }, { lanes, pieces });
    own.takePieces((await api.get(path)).buckets, length);
  }

  function move(by) {
    const length = shown.to - shown.from;
    show(shown.from + by * length, length);
  }
  function zoom(factor, around = (shown.from + shown.to) / 2) {
    const length = Math.min(LONGEST, Math.max(SHORTEST, (shown.to - shown.from) * factor));
    const share = (around - shown.from) / (shown.to - shown.from);
    show(around - share * length, length);
  }
  // While it is dragged, nothing is asked for.
  function drag(from, length) {
    held = true;
    shown = { from, to: from + length };
    picture.forget();
  }
  function show(from, length) {
    drag(from, length);
    held = false;
    adjust({ at: new Date(from).toISOString(), length: Math.round(length / 1000) });
  }
  const follow = (length = shown.to - shown.from) => adjust({ at: null, length: Math.round(length / 1000) });

  function makeControls() {
    const spans = Object.entries(SPANS).map(([name, length]) => element("button", { type: "button", "data-length": length, click: () => (place().at ? show((shown.from + shown.to - length) / 2, length) : follow(length)) }, name));
    const button = (name, label, click) => element("button", { type: "button", class: "plain", "aria-label": label, title: label, click }, name);
    const date = element("input", { type: "datetime-local", "aria-label": "Begin at", change: ({ target }) => target.value && show(Date.parse(target.value), shown.to - shown.from) });
    const by = element("select", { "aria-label": "Lanes", change: ({ target }) => adjust({ by: target.value || null }) }, element("option", { value: "" }, "this node, by class"), element("option", { value: "host" }, "each host, by class"));
    const now = button("now", "now: follow the clock", () => follow());
    return {
      elements: [element("div", { class: "spans", role: "group", "aria-label": "How long" }, spans), element("span", { class: "moves" }, button("◀", "Earlier", () => move(-0.5)), now, button("▶", "Later", () => move(0.5))), date, by],
      mark() {
        const length = shown.to - shown.from;
        for (const each of spans) each.setAttribute("aria-pressed", String(Number(each.dataset.length) === length));
        now.setAttribute("aria-pressed", String(!place().at));
        if (document.activeElement !== date) date.value = localText(shown.from);
        by.value = place().by ?? "";
      },
    };
  }

  listen({ canvas, picture, whatIf, span: () => shown, drag, show, zoom, move, follow });
  return { events: ["run", "reservation"], gap: 10_000, fetch, redraw: offer, tick: () => picture.draw(), close: () => picture.close() };
}

const byHost = () => place().by === "host";

/**
 * Returns the span that the address names; without a beginning it follows the clock.
 * @param {{ [name: string]: string }} fields
 */
function spanOf({ at, length }, now) {
  const span = Math.min(LONGEST, Math.max(SHORTEST, (Number(length) || 21_600) * 1000));
  const given = at ? Date.parse(at) : Number.NaN;
  const from = Number.isNaN(given) ? now - span * PAST : given;
  return { from, to: from + span };
}

function hostsOf(nodes, entries) {
  const known = [...nodes].sort((one, other) => Number(other.is_self) - Number(one.is_self) || (one.name < other.name ? -1 : 1)).map(({ name }) => name);
  const others = new Set(entries.flatMap(({ participants }) => participants).filter((name) => !known.includes(name)));
  return [...known, ...[...others].sort()];
}

function schedulePath({ from, to }, { lanes = LANES, pieces = 0 }) {
  const [first, last] = [from, to].map((instant) => new Date(instant).toISOString());
  const only = lanes.length < LANES.length ? `&class=${lanes.join()}` : "";
  const how = pieces ? `&resolution=PT${Math.ceil((to - from) / pieces / 1000)}S` : `&limit=${PAGE}&fields=${ENTRY_FIELDS}`;
  return `/v1/schedule?from=${first}&to=${last}${only}${how}`;
}

// What a field for date and time takes: local, to the minute.
function localText(instant) {
  const shift = new Date(instant).getTimezoneOffset() * MINUTE;
  return new Date(instant - shift).toISOString().slice(0, 16);
}

// A drag of the span itself.
function panning({ picture, span, drag, show }, event) {
  const at = picture.instantAt(event.offsetX);
  const end = () => show(span().from, span().to - span().from);
  const move = (x) => drag(span().from + at - picture.instantAt(x), span().to - span().from);
  return { move, end, cancel: end };
}

// Dragging, the wheel, and keys.
function listen(timeline) {
  const { canvas, picture, whatIf, zoom, move, follow } = timeline;
  /** @type {{ x: number, moved: boolean, move: (x: number) => void, end: () => void, cancel: () => void } | null} */
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const asks = event.shiftKey && whatIf.offered;
    drag = { x: event.offsetX, moved: false, ...(asks ? whatIf.drag(event) : panning(timeline, event)) };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag || (!drag.moved && Math.abs(event.offsetX - drag.x) < 5)) return;
    if (!drag.moved) canvas.setPointerCapture(event.pointerId);
    drag.moved = true;
    drag.move(event.offsetX);
  });
  canvas.addEventListener("pointerup", () => {
    // The click that follows belongs to the drag.
    if (drag?.moved) {
      canvas.addEventListener("click", (event) => event.stopImmediatePropagation(), { capture: true, once: true });
      drag.end();
    }
    drag = null;
  });
  canvas.addEventListener("pointercancel", () => {
    if (drag?.moved) drag.cancel();
    drag = null;
  });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, picture.instantAt(event.offsetX));
  }, { passive: false });
  const ask = () => whatIf.offered && whatIf.here();
  const keys = { "+": () => zoom(0.5), "-": () => zoom(2), PageUp: () => move(-0.5), PageDown: () => move(0.5), Home: () => follow(), w: ask, W: ask };
  canvas.addEventListener("keydown", (event) => {
    if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
}
