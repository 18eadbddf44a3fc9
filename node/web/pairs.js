// Pairs of ends that are measured, and what their tasks found over time. Pure.

import { partsOf } from "./words.js";

/** Returns source and dest of a task: as its mesh names them, else as its headline does; null if it has none. */
export function endsOf({ headline, reference }) {
  if (reference?.source && reference?.dest) return [reference.source, reference.dest];
  const { ends } = partsOf(headline);
  const there = ends.split(" → ");
  if (there.length === 2) return there;
  const back = ends.split(" ← ");
  return back.length === 2 ? back.reverse() : null;
}

/** Returns the pairs of tasks, both directions as one, each with its tasks by direction; the most measured first. */
export function pairsOf(tasks) {
  const pairs = new Map();
  for (const task of tasks) {
    const ends = endsOf(task);
    if (!ends) continue;
    const key = [...ends].sort().join(" ");
    if (!pairs.has(key)) pairs.set(key, { key, source: ends[0], dest: ends[1], there: [], back: [] });
    const pair = pairs.get(key);
    pair[ends[0] === pair.source ? "there" : "back"].push(task);
  }
  const size = ({ there, back }) => there.length + back.length;
  return [...pairs.values()].sort((one, other) => size(other) - size(one) || (one.key < other.key ? -1 : 1));
}

/** Returns the names of the figures of runs, in the order of their test. */
export function figuresOf(runs) {
  return [...new Set(runs.flatMap(({ metrics }) => metrics.map(({ name }) => name)))];
}

/**
 * Returns the course of a figure: instants in seconds, and for each line its values at these. A value is
 * undefined where another line has one, and null where a run of this line has none, which cuts the line.
 */
export function courseOf(runs, name) {
  const ordered = [...runs].sort((one, other) => one.starts - other.starts);
  const times = [...new Set(ordered.map(({ starts }) => starts))];
  const at = new Map(times.map((instant, index) => [instant, index]));
  const place = ({ starts }) => at.get(starts) ?? 0;
  const lines = new Map();
  let unit = "";
  const lineOf = (way, label) => {
    const title = [way, label].filter(Boolean).join(", ");
    if (!lines.has(title)) lines.set(title, { title, way, values: new Array(times.length) });
    return lines.get(title);
  };
  for (const run of ordered) {
    for (const metric of run.metrics) {
      if (metric.name !== name) continue;
      unit = metric.unit;
      const label = Object.values(metric.labels).join(" ").replaceAll("_", " ");
      lineOf(run.way, label).values[place(run)] = metric.value;
    }
  }
  for (const run of ordered) {
    if (run.metrics.some((metric) => metric.name === name)) continue;
    for (const line of lines.values()) if (line.way === run.way) line.values[place(run)] ??= null;
  }
  const byTime = new Map();
  for (const run of ordered) byTime.set(run.starts, run);
  return { unit, times: times.map((instant) => instant / 1000), lines: [...lines.values()], runs: times.map((instant) => byTime.get(instant)) };
}

/** Returns the spans in which results are doubtful, one for each row of runs with the same verdict. */
export function bandsOf(runs) {
  const ordered = [...runs].sort((one, other) => one.starts - other.starts);
  const bands = [];
  for (const way of new Set(ordered.map((run) => run.way))) {
    /** @type {any} */
    let last = null;
    for (const run of ordered) {
      if (run.way !== way) continue;
      if (!run.verdict || run.verdict === "clean") last = null;
      else if (last?.verdict === run.verdict) last.to = run.ends;
      else bands.push((last = { verdict: run.verdict, from: run.starts, to: run.ends }));
    }
  }
  return bands;
}
