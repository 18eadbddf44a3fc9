// A planning attempt as a picture: for each participant a lane with its free time and what was in the
// way, the windows above them, and the starts that were chosen. Pure, but for the elements it makes.

import { element, vector } from "./dom.js";
import { momentOf, readable, shortTimeOf, spell } from "./words.js";

const WIDTH = 640;
const LEFT = 96;
const RIGHT = 8;
const TOP = 22;
const LANE = 26;
const BAR = 14;
const TICKS = 5;
// So many windows are shown around the one that matters; an attempt may have thousands.
const WINDOWS = 12;
const ROOM = 0.25;

/** Returns the picture of a trace around an instant (ms), and a list of what it shows; null if it has no windows. */
export function tracePicture(trace, around, now) {
  const windows = (trace.windows ?? []).map(([from, to]) => ({ from: from / 1000, to: to / 1000 }));
  if (!windows.length || !Array.isArray(trace.offers) || !trace.offers.length) return null;
  const first = Math.max(0, Math.min(windows.length - WINDOWS, nearest(windows, around) - WINDOWS / 2));
  const shown = windows.slice(first, first + WINDOWS);
  const span = spanOf(shown);
  const lanes = trace.offers.map((offer) => laneOf(offer, windows, span));
  const starts = (trace.choices ?? []).map(([, at]) => at / 1000).filter((at) => at >= span.from && at <= span.to);
  const height = TOP + LANE * (lanes.length + 1) + 16;
  const words = lanes.map(({ name, busy }) => `${name}: ${busy.length ? busy.map(({ words: each }) => each).join(", ") : "nothing in the way"}`);
  const svg = vector("svg", { class: "trace", viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": `Who was busy when. ${words.join(". ")}` });
  const x = (at) => LEFT + ((Math.min(span.to, Math.max(span.from, at)) - span.from) / (span.to - span.from)) * (WIDTH - LEFT - RIGHT);
  drawAxis(svg, span, height, x);
  drawLane(svg, "windows", TOP, shown.map((each) => ({ ...each, kind: "window", words: `window ${momentOf(each.from, now)} – ${momentOf(each.to, now)}` })), x);
  lanes.forEach(({ name, free, busy }, index) => {
    const marks = [...free.map((each) => ({ ...each, kind: "free", words: `free ${momentOf(each.from, now)} – ${momentOf(each.to, now)}` })), ...busy];
    drawLane(svg, name, TOP + LANE * (index + 1), marks, x);
  });
  for (const at of starts) {
    const line = vector("line", { class: "chosen", x1: x(at), x2: x(at), y1: TOP, y2: height - 16 });
    line.append(vector("title", {}, `chosen: ${momentOf(at, now)}`));
    svg.append(line);
  }
  return element("figure", { class: "chart" }, svg, legend({ chosen: starts.length, closed: lanes.some(({ busy }) => busy.some(({ kind }) => kind === "closed")) }, trace.offers, now));
}

function nearest(windows, around) {
  const away = ({ from, to }) => (around >= from && around <= to ? 0 : Math.min(Math.abs(around - from), Math.abs(around - to)));
  let best = 0;
  windows.forEach((window, index) => {
    if (away(window) < away(windows[best])) best = index;
  });
  return best;
}

function spanOf(windows) {
  const [from, to] = [Math.min(...windows.map((each) => each.from)), Math.max(...windows.map((each) => each.to))];
  const room = Math.max(1000, (to - from) * ROOM);
  return { from: from - room, to: to + room };
}

function laneOf({ node, free, obstacles = [] }, windows, span) {
  const inside = ({ from, to }) => to > span.from && from < span.to;
  const ranges = free === "everything" ? windows : (free ?? []).map(([from, to]) => ({ from: from / 1000, to: to / 1000 }));
  // An obstacle is told for each window that it is in the way of.
  const busy = new Map();
  for (const obstacle of obstacles) {
    const window = windows[obstacle.window] ?? windows[0];
    const from = obstacle.starts_at === undefined ? window.from : obstacle.starts_at / 1000;
    const to = obstacle.ends_at === undefined ? window.to : obstacle.ends_at / 1000;
    const each = { from, to, kind: obstacle.reservation ? "closed" : "busy", words: obstacleWords(obstacle, spell(to - from)) };
    if (inside(each)) busy.set(`${from} ${to} ${each.words}`, each);
  }
  return { name: node, free: ranges.filter(inside), busy: [...busy.values()] };
}

function obstacleWords({ reservation, name, kind, test, scheduling_class: lane, priority }, length) {
  if (reservation) return `reserved: ${[kind, name].filter(Boolean).join(" ")}`;
  if (!lane) return "a limit of this host";
  return test ? `${lane} ${test}, priority ${priority}, ${length}` : `${lane} run that another node leads, ${length}`;
}

function drawAxis(svg, { from, to }, height, x) {
  for (let index = 0; index <= TICKS; index += 1) {
    const at = from + ((to - from) * index) / TICKS;
    const anchor = index === 0 ? "start" : index === TICKS ? "end" : "middle";
    svg.append(vector("line", { class: "grid", x1: x(at), x2: x(at), y1: TOP - 4, y2: height - 16 }), vector("text", { class: "tick", x: x(at), y: 12, "text-anchor": anchor }, shortTimeOf(at)));
  }
}

function drawLane(svg, name, y, marks, x) {
  svg.append(vector("text", { class: "name", x: 0, y: y + BAR - 3 }, name.length > 14 ? `${name.slice(0, 13)}…` : name));
  for (const { from, to, kind, words } of marks) {
    const mark = vector("rect", { class: kind, x: x(from), y: kind === "free" ? y + 2 : y, width: Math.max(1.5, x(to) - x(from)), height: kind === "free" ? BAR - 4 : BAR, rx: 2 });
    mark.append(vector("title", {}, words));
    svg.append(mark);
  }
}

function legend({ chosen, closed }, offers, now) {
  const reasons = offers.filter(({ reason }) => reason).map(({ node, reason }) => element("span", { class: "bad" }, `${node}: ${readable(reason, now)}`));
  const keys = [["window", "window"], ["free", "free"], ["busy", "in the way"], ...(closed ? [["closed", "reserved"]] : []), ...(chosen ? [["chosen", "chosen start"]] : [])];
  return element("figcaption", {}, keys.map(([kind, words]) => element("span", { class: `trace-key ${kind}` }, words)), reasons);
}
