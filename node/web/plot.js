// Plots by uPlot, which is loaded when one is first drawn: figures over time, and histograms.

import { element } from "./dom.js";
import { summaryOf, tickTexts, valueText } from "./figures.js";
import { momentOf, shortTimeOf, dateOf } from "./words.js";

const HEIGHT = 230;
const WIDTH_LEAST = 240;
const COLOURS = ["running", "missed", "done", "reserved", "ink", "gone", "failed", "strong-line"];
const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3]];
// Beyond so many instants the points of a line would hide the others.
const POINTS_MOST = 150;
const HOUR = 3_600;
const DAY = 24 * HOUR;
const NONE = "–";

/** @type {Promise<any> | null} */
let loading = null;

function loaded() {
  loading ??= new Promise((resolve, reject) => {
    document.head.append(
      element("link", { rel: "stylesheet", href: "/web/uplot.css" }),
      element("script", { src: "/web/uplot.js", load: () => resolve(Reflect.get(window, "uPlot")), error: () => reject(new Error("The plot could not be loaded.")) }),
    );
  });
  return /** @type {Promise<any>} */ (loading);
}

/**
 * Keeps a plot in a box: as wide as it, in the colours of the moment, and no longer than the box is on the page. `optionsOf(colour,
 * axis)` gives the options of uPlot. Returns what removes the plot.
 */
async function keep(box, label, data, optionsOf) {
  const UPlot = await loaded();
  if (!box.isConnected) return () => {};
  /** @type {any} */
  let made = null;
  const width = () => Math.max(WIDTH_LEAST, box.clientWidth);
  const draw = () => {
    made?.destroy();
    const style = getComputedStyle(box);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const axis = { stroke: colour("muted"), font: `12px ${style.fontFamily}`, grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 } };
    box.replaceChildren();
    made = new UPlot({ width: width(), height: HEIGHT, ...optionsOf(colour, axis) }, data, box);
    const canvas = made.root.querySelector("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", label);
    const head = made.root.querySelector(".u-legend thead th");
    if (head) head.textContent = "Line";
    // The first line of a legend in one row is that of the x-axis.
    for (const row of made.root.querySelectorAll(".u-legend:not(.u-inline) .u-series, .u-inline .u-series ~ .u-series")) offerToggle(row);
  };
  draw();
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  // Only its width follows: a height that follows would grow by itself.
  const observer = new ResizeObserver(() => {
    if (!box.isConnected) remove();
    else if (width() !== made.width) made.setSize({ width: width(), height: HEIGHT });
  });
  function remove() {
    observer.disconnect();
    scheme.removeEventListener("change", draw);
    made.destroy();
  }
  scheme.addEventListener("change", draw);
  observer.observe(box);
  return remove;
}

// A line of the legend shows and hides its line on the plot by keyboard, too.
function offerToggle(row) {
  const label = row.querySelector(".u-label");
  const mark = () => label.setAttribute("aria-pressed", String(!row.classList.contains("u-off")));
  label.setAttribute("role", "button");
  label.tabIndex = 0;
  label.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    label.click();
  });
  row.addEventListener("click", () => queueMicrotask(mark));
  mark();
}

/**
 * Draws a course into a box: lines with least, mean and last value, bands of doubtful results behind them, and below them a mark for
 * each run without a result. Calls `onOpen(run)` for the run that is clicked; `shown` is a run that is marked. Returns what removes it.
 */
export function plot(box, { course, bands, lost, from, to, shown = null }, { now, onOpen, label }) {
  const text = (value) => (value === null || value === undefined ? NONE : valueText(value, course.unit));
  const sums = course.lines.map(({ values }) => summaryOf(values));
  const data = [course.times, ...course.lines.map(({ values }) => values)];
  // Of the legend: the value under the cursor, and those of the whole line.
  const told = (_, line, index) => {
    const sum = sums[line - 1];
    const at = index === null || index === undefined ? null : course.times[index];
    const value = at === null ? null : data[line][index];
    const whole = sum ? { Min: text(sum.least), Mean: text(sum.mean), Last: text(sum.last) } : { Min: NONE, Mean: NONE, Last: NONE };
    return { ...whole, "Here": value === null || value === undefined ? NONE : `${text(value)}, ${momentOf(at * 1000, now)}` };
  };
  return keep(box, label, data, (colour, axis) => ({
    cursor: { sync: { key: "course" }, points: { size: 7 }, drag: { x: true, y: false } },
    scales: { x: { range: (_, low, high) => (low === high || high === null ? [from / 1000, to / 1000] : [low, high]), min: from / 1000, max: to / 1000 }, y: { range: (_, low, high) => rangeOf(low, high) } },
    axes: [
      { ...axis, size: 48, space: 96, values: (_, splits) => splits.map((_at, index) => tickText(splits, index)) },
      { ...axis, size: 78, values: (_, splits) => tickTexts(splits, course.unit) },
    ],
    legend: { live: true },
    series: [
      {},
      ...course.lines.map(({ title, isHidden }, index) => ({
        label: title,
        show: !isHidden,
        stroke: colour(COLOURS[index % COLOURS.length]),
        dash: DASHES[Math.floor(index / 2) % DASHES.length],
        width: 1.6,
        points: { size: 5, show: course.times.length <= POINTS_MOST },
        values: told,
      })),
    ],
    hooks: {
      drawClear: [(u) => paintBands(u, bands, colour)],
      draw: [(u) => paintLost(u, lost, colour), (u) => shown && paintShown(u, shown, colour)],
      ready: [
        (u) => {
          u.setScale("x", { min: from / 1000, max: to / 1000 });
          u.over.addEventListener("click", () => {
            const run = course.runs[u.cursor.idx];
            if (run && !u.select.width) onOpen(run);
          });
        },
      ],
    },
  }));
}

/**
 * Draws histograms into a box, one for each direction. Returns what removes the plot.
 * @param {HTMLElement} box
 * @param {{ title: string, histogram: { width_ms: number, buckets: [number, number][] } }[]} lines
 * @param {string} label
 */
export function plotHistogram(box, lines, label) {
  const bounds = [...new Set(lines.flatMap(({ histogram: { width_ms: width, buckets } }) => buckets.flatMap(([at]) => [at * width, (at + 1) * width])))].sort((one, other) => one - other);
  const data = lines.map(({ histogram: { width_ms: width, buckets } }) => {
    const counts = new Map(buckets.map(([at, count]) => [at * width, count]));
    return bounds.map((bound) => counts.get(bound) ?? 0);
  });
  return keep(box, label, [bounds, ...data], (colour, axis) => ({
    scales: { x: { time: false }, y: { range: (_, _low, high) => [0, (high ?? 1) * 1.1] } },
    axes: [
      { ...axis, values: (_, splits) => tickTexts(splits, "ms") },
      { ...axis, size: 60, values: (_, splits) => splits.map((value) => (Number.isInteger(value) ? String(value) : "")) },
    ],
    series: [
      { label: "from", value: (_, value) => (value === null ? NONE : valueText(value, "ms")) },
      ...lines.map(({ title }, index) => ({
        label: title,
        stroke: colour(COLOURS[index % COLOURS.length]),
        fill: `color-mix(in srgb, ${colour(COLOURS[index % COLOURS.length])} 18%, transparent)`,
        dash: DASHES[Math.floor(index / 2) % DASHES.length],
        width: 1.4,
        points: { show: false },
        paths: Reflect.get(window, "uPlot").paths.stepped({ align: 1 }),
        value: (_, value) => (value === null || value === undefined ? NONE : `${value} packets`),
      })),
    ],
  }));
}

/**
 * Draws what several have of each span of time, one above the other, paler from `ahead` on. Returns what removes the plot.
 * @param {HTMLElement} box
 * @param {{ times: number[], length: number, lines: { title: string, values: number[] }[], unit: string, ahead: number }} content
 * @param {{ now: number, label: string }} context
 */
export function plotStacks(box, { times, length, lines, unit, ahead }, { now, label }) {
  // The whole stack is drawn first, and what is below in front of it.
  const below = (count) => times.map((_, index) => lines.slice(0, count).reduce((sum, { values }) => sum + values[index], 0));
  const stacked = lines.map((line, order) => ({ ...line, order, sums: below(order + 1) })).reverse();
  const sumOf = (values, isIn) => valueText(values.reduce((sum, value, index) => sum + (isIn(times[index]) ? value : 0), 0), unit);
  const told = (_, line, index) => {
    const { values } = stacked[line - 1] ?? { values: [] };
    const here = index === null || index === undefined || values[index] === undefined ? NONE : `${valueText(values[index], unit)}, ${momentOf(times[index], now)}`;
    return { Had: sumOf(values, (at) => at < ahead), Ahead: sumOf(values, (at) => at >= ahead), Here: here };
  };
  const [from, to] = [times[0], times[times.length - 1] + length].map((at) => at / 1000);
  return keep(box, label, [times.map((at) => at / 1000), ...stacked.map(({ sums }) => sums)], (colour, axis) => ({
    cursor: { points: { show: false }, drag: { x: false, y: false } },
    scales: { x: { range: () => [from, to] }, y: { range: (_, _low, high) => [0, (high || 1) * 1.1] } },
    axes: [
      { ...axis, size: 48, space: 96, values: (_, splits) => splits.map((_at, index) => tickText(splits, index)) },
      { ...axis, size: 78, values: (_, splits) => splits.map((value) => valueText(value, unit)) },
    ],
    legend: { live: true },
    series: [
      {},
      ...stacked.map(({ title, order }) => ({
        label: title,
        stroke: colour("surface"),
        fill: colour(COLOURS[order % COLOURS.length]),
        width: 1,
        points: { show: false },
        paths: Reflect.get(window, "uPlot").paths.bars({ size: [0.96, Infinity], align: 1 }),
        values: told,
      })),
    ],
    hooks: { draw: [(u) => paintAhead(u, ahead, colour)] },
  }));
}

function paintAhead(u, ahead, colour) {
  const { ctx } = u;
  const { top, height, left, width } = u.bbox;
  const x = u.valToPos(ahead / 1000, "x", true);
  ctx.save();
  ctx.globalAlpha = 0.5;
  ctx.fillStyle = colour("surface");
  ctx.fillRect(x, top, left + width - x, height);
  ctx.globalAlpha = 1;
  ctx.fillStyle = colour("accent");
  ctx.fillRect(x, top, 2 * devicePixelRatio, height);
  ctx.restore();
}

// From 0 if that is not far away, with some room, so that a constant is a line in the middle.
function rangeOf(low, high) {
  if (low === null || high === null) return [0, 1];
  const bottom = low >= 0 && low <= high * 0.6 ? 0 : low - (high - low || Math.abs(low) || 1) * 0.15;
  const room = (high - bottom || Math.abs(high) || 1) * 0.1;
  return [bottom, high + room];
}

// The date is below the first time of each day only; steps of days have no time.
function tickText(splits, index) {
  const at = splits[index] * 1000;
  if (splits[1] - splits[0] >= DAY - HOUR) return dateOf(at);
  const isFirst = index === 0 || dateOf(at) !== dateOf(splits[index - 1] * 1000);
  return isFirst ? `${shortTimeOf(at)}\n${dateOf(at)}` : shortTimeOf(at);
}

function paintBands(u, bands, colour) {
  const { ctx } = u;
  const { top, height, left, width } = u.bbox;
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  ctx.fillStyle = colour("doubt");
  for (const { verdict, from, to } of bands) {
    const x = u.valToPos(from / 1000, "x", true);
    const right = u.valToPos(to / 1000, "x", true);
    ctx.globalAlpha = verdict === "contaminated" ? 0.26 : 0.13;
    ctx.fillRect(x - 3, top, Math.max(6, right - x + 6), height);
  }
  ctx.restore();
}

// The run that the reader looks at.
function paintShown(u, shown, colour) {
  const { ctx } = u;
  const { top, height } = u.bbox;
  const x = u.valToPos(shown.starts / 1000, "x", true);
  ctx.save();
  ctx.strokeStyle = colour("accent");
  ctx.lineWidth = 2 * devicePixelRatio;
  ctx.beginPath();
  ctx.moveTo(x, top);
  ctx.lineTo(x, top + height);
  ctx.stroke();
  ctx.restore();
}

// A cross for what failed, a dot for what was missed: they differ not by colour alone.
function paintLost(u, lost, colour) {
  const { ctx } = u;
  const { top, height, left, width } = u.bbox;
  const size = 3.5 * devicePixelRatio;
  const y = top + height - 2 * size;
  ctx.save();
  ctx.lineWidth = 1.6 * devicePixelRatio;
  for (const { starts, kind } of lost) {
    const x = u.valToPos(starts / 1000, "x", true);
    if (x < left || x > left + width) continue;
    ctx.strokeStyle = ctx.fillStyle = colour(kind === "failed" ? "failed" : "missed");
    ctx.beginPath();
    if (kind === "failed") {
      ctx.moveTo(x - size, y - size);
      ctx.lineTo(x + size, y + size);
      ctx.moveTo(x + size, y - size);
      ctx.lineTo(x - size, y + size);
      ctx.stroke();
    } else {
      ctx.arc(x, y, size * 0.8, 0, 7);
      ctx.fill();
    }
  }
  ctx.restore();
}
