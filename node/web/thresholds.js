// How good values are: by the thresholds of the mesh file, otherwise by usual ones. Pure.

import { valueText } from "./chart-layout.js";

/**
 * @typedef {{ fair: number, bad: number }} Threshold a value that reaches one of these is fair, or bad; smaller ones are
 *   worse if `bad` is below `fair`
 * @typedef {{ name: string, value: number, unit: string, labels: { [name: string]: string } }} Metric
 * @typedef {"good" | "fair" | "bad"} Level
 */

/** @type {Level[]} */
const LEVELS = ["good", "fair", "bad"];

// Delays: half of what calls bear (ITU-T G.114) in one direction, and twice that for the way there and back.
/** @type {{ [figure: string]: Threshold }} */
const USUAL = {
  loss: { fair: 0.001, bad: 0.01 },
  rtt_median_ms: { fair: 300, bad: 800 },
  delay_median_ms: { fair: 150, bad: 400 },
  reached: { fair: 0.5, bad: 0 },
};
// Nobody knows how fast links are, so rates are compared with each other: half, and a fifth of the median.
const RATE = "throughput_bps";
const SHARES = { fair: 0.5, bad: 0.2 };
const ROUND_TRIP = "round_trip";

/**
 * Returns the thresholds of each figure of pairs: those that their mesh file has, else usual ones, with where they are from.
 * @param {{ thresholds: { [figure: string]: Threshold }, latest: { metrics: Metric[] } | null }[]} pairs
 */
export function thresholdsOf(pairs) {
  const rates = pairs.flatMap(({ latest }) => latest?.metrics ?? []).filter(({ name }) => name === RATE);
  const median = medianOf(rates.map(({ value }) => value));
  const usual = median ? { ...USUAL, [RATE]: { fair: SHARES.fair * median, bad: SHARES.bad * median } } : USUAL;
  return (/** @type {(typeof pairs)[number]} */ pair) => ({ ...usual, ...pair.thresholds });
}

/** @param {number[]} values */
function medianOf(values) {
  const ordered = [...values].sort((one, other) => one - other);
  return ordered.length ? ordered[Math.floor((ordered.length - 1) / 2)] : null;
}

/**
 * Returns how good a figure is; null if it has no thresholds.
 * @param {Metric} metric
 * @param {{ [figure: string]: Threshold }} thresholds
 */
export function levelOf({ name, value, labels }, thresholds) {
  const threshold = thresholds[name];
  if (!threshold) return null;
  // The usual ones for a delay are those of one direction.
  const twice = threshold === USUAL[name] && labels.direction === ROUND_TRIP && name.startsWith("delay") ? 2 : 1;
  const reached = (/** @type {number} */ bound) => (threshold.bad > threshold.fair ? value >= bound * twice : value <= bound);
  return reached(threshold.bad) ? "bad" : reached(threshold.fair) ? "fair" : "good";
}

/**
 * Returns the worst of levels; null if there are none.
 * @param {(Level | null)[]} levels
 */
export function worstOf(levels) {
  const ranks = levels.flatMap((level) => (level ? [LEVELS.indexOf(level)] : []));
  return ranks.length ? LEVELS[Math.max(...ranks)] : null;
}

/**
 * Says from which values on a figure is fair, or bad: "fair from 300 ms on, bad from 800 ms on".
 * @param {Threshold} threshold
 * @param {string} unit
 */
export function thresholdWords({ fair, bad }, unit) {
  const way = bad > fair ? "on" : "down";
  return `fair from ${valueText(fair, unit)} ${way}, bad from ${valueText(bad, unit)} ${way}`;
}

/**
 * Says where the thresholds of a figure are from.
 * @param {string} name
 * @param {boolean} isWritten
 */
export function originWords(name, isWritten) {
  if (isWritten) return "by the mesh file";
  if (name.startsWith("delay")) return "usual, for a round trip twice that; a mesh file may say others";
  return name === RATE ? "half and a fifth of the median of this matrix" : "usual; a mesh file may say others";
}
