// How the judgements of the node look: a word, a colour, an icon, and in the matrix a pattern of its own. Pure.

/**
 * @typedef {object} Look
 * @property {string} word
 * @property {string} kind the class of its colour
 * @property {string} icon of the sprite in index.html
 * @property {string} colour the name of a colour of style.css
 * @property {number} fill how much of the colour the square has, from 0 to 1
 * @property {string} [mark] the colour of its pattern, if that is another one
 * @property {string} pattern how it differs from the others without any colour: see matrix-paint.js
 */

/** @type {Record<string, Look>} the worst first */
export const LOOKS = {
  "no-answer": { word: "no answer", kind: "failed", icon: "cross", colour: "failed", fill: 0.85, pattern: "cross", mark: "on-bar" },
  failed: { word: "failed", kind: "failed", icon: "cross", colour: "failed", fill: 0.42, pattern: "cross" },
  bad: { word: "bad", kind: "failed", icon: "alert", colour: "failed", fill: 0.42, pattern: "corner" },
  missed: { word: "missed", kind: "missed", icon: "alert", colour: "missed", fill: 0.34, pattern: "dot" },
  refused: { word: "refused", kind: "missed", icon: "dash", colour: "missed", fill: 0, pattern: "barred" },
  fair: { word: "fair", kind: "missed", icon: "alert", colour: "missed", fill: 0.34, pattern: "corner" },
  stale: { word: "stale", kind: "gone", icon: "clock", colour: "gone", fill: 0.12, pattern: "stripes" },
  "not-planned": { word: "not planned", kind: "gone", icon: "dash", colour: "gone", fill: 0, pattern: "dashed" },
  unknown: { word: "unknown", kind: "gone", icon: "clock", colour: "gone", fill: 0, pattern: "dots" },
  good: { word: "good", kind: "done", icon: "check", colour: "done", fill: 0.3, pattern: "plain" },
};

/** Judgements as they get better. */
const ORDER = Object.keys(LOOKS);

/** The judgements of what has no result, or a bad one, as a filter of the API. */
export const TROUBLE = "no-answer,failed,bad,missed,not-planned";

/** Those among them of runs that have a result. */
export const BAD_RESULTS = ["no-answer", "bad"];

/**
 * Returns whether a run that is over has no result, or a bad one.
 * @param {{ kind: string, outcome: { judgement: string } | null }} run
 */
export const isTrouble = ({ kind, outcome }) => (outcome ? TROUBLE.split(",").includes(outcome.judgement) : kind === "failed" || kind === "missed");

/**
 * Returns the look of a run whose result is not good; null if its state says all.
 * @param {{ state: string, outcome?: { judgement: string } | null }} run
 */
export function lookOfResult({ state, outcome }) {
  const judgement = outcome?.judgement ?? "good";
  return state === "finished" && judgement !== "good" && judgement !== "unknown" ? (LOOKS[judgement] ?? null) : null;
}

/**
 * Returns the name of the look of a pair: as its node has judged it, or refused if it has no task that could be judged.
 * @param {{ state: string, outcome: { judgement: string } | null }} pair
 */
export function lookOf({ state, outcome }) {
  if (state === "refused") return "refused";
  return outcome && outcome.judgement in LOOKS ? outcome.judgement : "unknown";
}

/**
 * Returns the place of a look among all of them, the worst first.
 * @param {string} look
 */
export const badnessOf = (look) => ORDER.indexOf(look);
