// The chart of a task's figures over its runs: one figure at a time, chosen by its name.

import { element, vector } from "./dom.js";
import { courseOf, layOut, namesOf, valueText, wordsOf } from "./chart-layout.js";
import { hrefOf } from "./place.js";
import { momentOf, readable, stateOf } from "./words.js";

const HEIGHT = 200;
// The widths of the drawer and of the page: one unit of the drawing is about a pixel in both.
const WIDTHS = { drawer: 640, page: 1300 };

// The figure that was last chosen for each test, which is also used for its next run.
const chosen = new Map();

/**
 * Returns the query of the chart: the newest runs of a task that are over, or those up to a run.
 * @param {string} task
 * @param {any} upTo
 */
export function coursePath(task, upTo = null) {
  const until = upTo ? `&to=${new Date(Date.parse(upTo.starts_at) + 1).toISOString()}` : "";
  return `/v1/runs?state=finished,failed,missed,unplaced&order=desc&limit=200&task=${task}${until}`;
}

/** Converts the runs of a list for the chart. */
export function measured(documents) {
  return documents.map((run) => ({
    id: run.id,
    test: run.test,
    state: run.state,
    reason: run.reason,
    starts: Date.parse(run.starts_at),
    participants: run.participants,
    metrics: run.metrics,
  }));
}

/** Converts the intervals of a run for the chart; each is like a run and links to its run. */
export function intervalsMeasured(documents, run) {
  return documents.map((interval) => ({
    id: run.id,
    test: run.test,
    state: interval.result === null ? "failed" : "finished",
    reason: interval.reason,
    starts: Date.parse(interval.starts_at),
    participants: run.participants,
    metrics: interval.metrics,
  }));
}

/** Returns a figure with the chart; null if no run has measured anything that can be drawn. */
export function chart(runs, { now, shown = null, on = "drawer", what = "runs" }) {
  const names = namesOf(runs);
  if (!names.length) return null;
  const test = runs.find(({ metrics }) => metrics.length).test;
  const figure = element("figure", { class: "chart" });
  const draw = () => {
    const name = names.includes(chosen.get(test)) ? chosen.get(test) : names[0];
    figure.replaceChildren(...contents(runs, names, name, { now, shown, choose, what, width: WIDTHS[on] }));
  };
  const choose = ({ target }) => {
    chosen.set(test, target.value);
    draw();
    figure.querySelector("select").focus();
  };
  draw();
  return figure;
}

function contents(runs, names, name, { now, shown, choose, what, width }) {
  const course = courseOf(runs, name);
  const box = { left: 74, right: width - 10, top: 12, bottom: HEIGHT - 32 };
  const marks = layOut(course, box);
  const options = names.map((each) => element("option", { value: each, selected: each === name }, wordsOf(each)));
  return [
    element("label", {}, "Figure ", element("select", { change: choose }, options)),
    drawing(course, marks, box, { now, shown, name, what }),
    element("figcaption", {}, ...caption(course, marks)),
  ];
}

function drawing(course, marks, box, { now, shown, name, what }) {
  const words = `${wordsOf(name)} of ${countText(course, what)}, ${momentOf(marks.from, now)} to ${momentOf(marks.to, now)}`;
  const svg = vector("svg", { viewBox: `0 0 ${box.right + 10} ${HEIGHT}`, role: "group", "aria-label": words });
  for (const { y, text } of marks.ticks) {
    svg.append(
      vector("line", { class: "grid", x1: box.left, x2: box.right, y1: y, y2: y }),
      vector("text", { class: "tick", x: box.left - 8, y: y + 4, "text-anchor": "end" }, text),
    );
  }
  svg.append(
    vector("text", { class: "tick", x: box.left, y: HEIGHT - 8 }, momentOf(marks.from, now)),
    vector("text", { class: "tick", x: box.right, y: HEIGHT - 8, "text-anchor": "end" }, momentOf(marks.to, now)),
  );
  marks.lines.forEach(({ title, paths, dots }, index) => {
    const group = vector("g", { class: `line line-${index}` });
    for (const path of paths) group.append(vector("path", { d: path }));
    for (const dot of dots) group.append(dotOf(dot, title, course.unit, { now, shown }));
    svg.append(group);
  });
  for (const { x, run } of marks.crosses) svg.append(crossOf(x, box.bottom + 8, run, now));
  return svg;
}

function dotOf({ x, y, value, run }, title, unit, { now, shown }) {
  const words = `${title}: ${valueText(value, unit)}, ${momentOf(run.starts, now)}`;
  const radius = run.id === shown ? 6 : 2.5;
  return linked(run, words, vector("circle", { cx: x, cy: y, r: radius, class: run.id === shown ? "shown" : "dot" }));
}

// Failed runs are drawn below the figures, so that a gap shows its cause.
function crossOf(x, y, run, now) {
  const words = `${stateOf(run.state).word}: ${readable(run.reason ?? "no figure", now)}, ${momentOf(run.starts, now)}`;
  return linked(run, words, vector("path", { class: "cross", d: `M${x - 3} ${y - 3}l6 6m-6 0l6 -6` }));
}

function linked(run, words, mark) {
  const link = vector("a", { href: hrefOf({ run: run.id }), tabindex: "-1" });
  link.append(vector("title", {}, words), mark);
  return link;
}

function caption({ series, left }, { crosses }) {
  const words = series.length > 1 ? series.map(({ title }, index) => element("span", { class: `key line-${index}` }, title)) : [];
  if (left) words.push(element("span", {}, `and ${left} more`));
  if (crosses.length) words.push(element("span", { class: "bad" }, `× ${crosses.length} without it`));
  return words;
}

function countText({ series, bad }, what) {
  const count = new Set(series.flatMap(({ pieces }) => pieces.flat().map(({ run }) => run))).size;
  return `${count} ${what}${bad.length ? `, ${bad.length} without it` : ""}`;
}
