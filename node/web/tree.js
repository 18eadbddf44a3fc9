// A JSON value as a tree a person can read: units from the fields' names, long lists folded.

import { element } from "./dom.js";

const UNITS = ["ms", "bps", "bytes"];
const FOLD_AT = 6;
const LONGEST_LINE = 72;

/** The value as nested lists. */
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

// Short lists of plain values read best in one line.
function oneLine(value, unit) {
  const items = Object.values(value);
  if (!items.length) return "none";
  if (!Array.isArray(value) || items.some((item) => item !== null && typeof item === "object")) return null;
  const line = items.map((item) => figure(item, unit)).join(", ");
  return line.length <= LONGEST_LINE ? line : null;
}

function unitOf(key) {
  return UNITS.find((unit) => key === unit || key.endsWith(`_${unit}`)) ?? null;
}

function words(key) {
  const unit = UNITS.find((ending) => key.endsWith(`_${ending}`));
  return (unit ? key.slice(0, -unit.length - 1) : key).replaceAll("_", " ");
}

function figure(value, unit) {
  if (value === null) return "not known";
  if (value === true) return "yes";
  if (value === false) return "no";
  if (typeof value !== "number" || unit === null) return String(value);
  if (unit === "ms") return `${Number(value.toFixed(3))} ms`;
  return scaled(value, unit === "bps" ? ["b/s", "kb/s", "Mb/s", "Gb/s"] : ["B", "kB", "MB", "GB"]);
}

function scaled(value, names) {
  let rest = value;
  let step = 0;
  for (; rest >= 1000 && step < names.length - 1; step += 1) rest /= 1000;
  return `${Number(rest.toPrecision(4))} ${names[step]}`;
}
