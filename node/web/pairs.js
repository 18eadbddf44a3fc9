// Pairs of ends that are measured, and when what was found is doubtful. Pure.

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
