// Shows a JSON value as a readable tree: units from the fields' names, long lists folded. The unit is
// the last word of a name, and applies to everything inside, as on the command line.

import { element } from "./dom.js";

const scaledTo = (names) => (value) => scaled(value, names);
const percent = (value) => `${Number((100 * value).toPrecision(3))} %`;
const UNITS = {
  ms: (value) => `${Number(value.toFixed(3))} ms`,
  s: (value) => `${value} s`,
  bps: scaledTo(["b/s", "kb/s", "Mb/s", "Gb/s"]),
  bytes: scaledTo(["B", "kB", "MB", "GB"]),
  loss: percent,
  cpu: percent,
  share: percent,
};
// These units also describe the value, so they stay in the name.
const TELLING = new Set(["loss", "cpu", "share"]);
const FOLD_AT = 6;
const LONGEST_LINE = 72;

/** Removes null fields: they were not requested, or have no meaning in this result. */
export function known(value) {
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.map(known);
  const entries = Object.entries(value).filter(([, child]) => child !== null);
  return Object.fromEntries(entries.map(([key, child]) => [key, known(child)]));
}

/** Creates nested lists for a value. */
export function tree(value, unit = null, depth = 0) {
  if (value === null || typeof value !== "object") return leaf(value, unit);
  const line = oneLine(value, unit);
  if (line !== null) return element("span", { class: "leaf" }, line);
  const entries = Object.entries(value);
  return element("ul", { class: "tree" }, entries.map(([key, child]) => branch(key, child, unit, depth)));
}

function branch(key, child, inherited, depth) {
  const unit = unitOf(key) ?? inherited;
  const label = element("span", { class: "key", title: key }, words(key));
  const nested = child !== null && typeof child === "object" && oneLine(child, unit) === null;
  if (!nested) return element("li", {}, label, tree(child, unit, depth + 1));
  const size = Object.keys(child).length;
  const count = Array.isArray(child) ? ` (${size})` : "";
  const open = depth === 0 && size <= FOLD_AT * 2 && !Array.isArray(child);
  const summary = element("summary", {}, label, count);
  return element("li", { class: "nested" }, element("details", { open }, summary, tree(child, unit, depth + 1)));
}

function leaf(value, unit) {
  const text = figure(value, unit);
  const kind = value === null ? "leaf none" : "leaf";
  return element("span", { class: kind, title: String(value) }, text);
}

// Short lists of plain values are shown in one line.
function oneLine(value, unit) {
  const items = Object.values(value);
  if (!items.length) return "none";
  if (!Array.isArray(value) || items.some((item) => item !== null && typeof item === "object")) return null;
  const line = items.map((item) => figure(item, unit)).join(", ");
  return line.length <= LONGEST_LINE ? line : null;
}

function unitOf(key) {
  const last = key.split("_").at(-1);
  return Object.hasOwn(UNITS, last) ? last : null;
}

function words(key) {
  const unit = unitOf(key);
  const named = unit === null || unit === key || TELLING.has(unit);
  return (named ? key : key.slice(0, -unit.length - 1)).replaceAll("_", " ");
}

function figure(value, unit) {
  if (value === null) return "unknown";
  if (value === true) return "yes";
  if (value === false) return "no";
  return typeof value === "number" && unit !== null ? UNITS[unit](value) : String(value);
}

function scaled(value, names) {
  let rest = value;
  let step = 0;
  for (; rest >= 1000 && step < names.length - 1; step += 1) rest /= 1000;
  return `${Number(rest.toPrecision(4))} ${names[step]}`;
}
