// The chart of a task's figures over its runs, or of a run's over its intervals: one figure at a time, chosen by its name.

import { element } from "./dom.js";
import { courseOf, figuresOf, wordsOf } from "./figures.js";
import { go } from "./place.js";
import { plot } from "./plot.js";
import { momentOf, stateOf } from "./words.js";

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
    kind: stateOf(run.state).kind,
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
    kind: interval.result === null ? "failed" : "done",
    starts: Date.parse(interval.starts_at),
    participants: run.participants,
    metrics: interval.metrics,
  }));
}

/** Returns a figure with the chart, drawn once it is on the page; null if no run has measured anything that can be drawn. */
export function chart(runs, { now, shown = null, what = "runs" }) {
  const names = figuresOf(runs);
  if (!names.length) return null;
  const several = new Set(runs.map(whom)).size > 1;
  const lines = runs.map((run) => ({ ...run, way: several ? whom(run) : "" }));
  const test = runs.find(({ metrics }) => metrics.length).test;
  const box = element("div", { class: "plot" });
  const caption = element("figcaption", {});
  const times = runs.map(({ starts }) => starts);
  const [from, to] = [Math.min(...times), Math.max(...times)];
  const room = (to - from || 60_000) / 50;
  let remove = () => {};
  const draw = async () => {
    remove();
    const name = names.includes(chosen.get(test)) ? chosen.get(test) : names[0];
    const course = courseOf(lines, name);
    const lost = lines.filter(({ metrics }) => !metrics.some((metric) => metric.name === name));
    const words = `${runs.length - lost.length} ${what}${lost.length ? `, ${lost.length} without it` : ""}`;
    const label = `${wordsOf(name)} of ${words}, ${momentOf(from, now)} to ${momentOf(to, now)}`;
    caption.replaceChildren(words, lost.length ? ": × failed, • missed" : "");
    const content = { course, bands: [], lost, from: from - room, to: to + room, shown: lines.find(({ id }) => id === shown) };
    remove = await plot(box, content, { now, onOpen: ({ id }) => go({ run: id }), label });
  };
  const choose = ({ target }) => {
    chosen.set(test, target.value);
    draw();
  };
  const options = names.map((each) => element("option", { value: each, selected: each === chosen.get(test) }, wordsOf(each)));
  const figure = element("figure", { class: "chart" }, element("label", {}, "Figure ", element("select", { change: choose }, options)), box, caption);
  // Its box is measured, so it must be on the page.
  queueMicrotask(draw);
  return figure;
}

const whom = ({ participants }) => participants.join(" → ");
