// A plot of a figure over time by uPlot, which is loaded when a plot is first drawn.

import { valueText } from "./chart-layout.js";
import { element } from "./dom.js";
import { momentOf, shortTimeOf, dateOf } from "./words.js";

const HEIGHT = 230;
const COLOURS = ["running", "missed", "done", "reserved", "ink", "gone", "failed", "strong-line"];
const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3]];
// Beyond so many instants the points of a line would hide the others.
const POINTS_MOST = 150;
const HOUR = 3_600;
const DAY = 24 * HOUR;

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
 * Draws a course into a box: lines, bands of doubtful results behind them, and below them a mark for each
 * run without a result. Calls `onOpen(run)` for the run that is clicked. Returns what removes the plot.
 */
export async function plot(box, { course, bands, lost, from, to }, { now, onOpen, label }) {
  const UPlot = await loaded();
  if (!box.isConnected) return () => {};
  const style = getComputedStyle(box);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const font = `12px ${style.fontFamily}`;
  const axis = { stroke: colour("muted"), font, grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 } };
  const options = {
    width: Math.max(240, box.clientWidth),
    height: HEIGHT,
    cursor: { sync: { key: "pair" }, points: { size: 7 }, drag: { x: true, y: false } },
    scales: { x: { range: (_, low, high) => (low === high || high === null ? [from / 1000, to / 1000] : [low, high]), min: from / 1000, max: to / 1000 }, y: { range: (_, low, high) => rangeOf(low, high) } },
    axes: [
      { ...axis, size: 48, space: 96, values: (_, splits) => splits.map((_at, index) => tickText(splits, index)) },
      { ...axis, size: 78, values: (_, splits) => splits.map((value) => valueText(value, course.unit)) },
    ],
    legend: { live: true },
    series: [
      { label: "time", value: (_, at) => (at === null ? "–" : momentOf(at * 1000, now)) },
      ...course.lines.map(({ title }, index) => ({
        label: title,
        stroke: colour(COLOURS[index % COLOURS.length]),
        dash: DASHES[Math.floor(index / 2) % DASHES.length],
        width: 1.6,
        points: { size: 5, show: course.times.length <= POINTS_MOST },
        value: (_, value) => (value === null || value === undefined ? "–" : valueText(value, course.unit)),
      })),
    ],
    hooks: {
      drawClear: [(u) => paintBands(u, bands, colour)],
      draw: [(u) => paintLost(u, lost, colour)],
      ready: [
        (u) => u.over.addEventListener("click", () => {
          const run = course.runs[u.cursor.idx];
          if (run && !u.select.width) onOpen(run);
        }),
      ],
    },
  };
  box.replaceChildren();
  const made = new UPlot(options, [course.times, ...course.lines.map(({ values }) => values)], box);
  made.root.querySelector("canvas").setAttribute("role", "img");
  made.root.querySelector("canvas").setAttribute("aria-label", label);
  made.setScale("x", { min: from / 1000, max: to / 1000 });
  // Only its width follows: a height that follows would grow by itself.
  const observer = new ResizeObserver(() => {
    const width = Math.max(240, box.clientWidth);
    if (width !== made.width) made.setSize({ width, height: HEIGHT });
  });
  observer.observe(box);
  return () => {
    observer.disconnect();
    made.destroy();
  };
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
