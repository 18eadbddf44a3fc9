// The view of the capacity: how full each hour is by class, which campaigns take it, and their budgets.

import { bytes } from "./bytes.js";
import { element, icon, vector } from "./dom.js";
import { plotStacks } from "./plot.js";
import { LANES } from "./timeline-layout.js";
import { setCall } from "./view-frame.js";
import { dateOf, momentOf, parseDuration, shortTimeOf, spell } from "./words.js";

const HOUR = 3_600_000;
const BACK = 24;
const AHEAD = 24;
const HOURS = BACK + AHEAD;
const STEPS = 10;
const USAGE_PAGES = 20;
const HEADS = ["Campaign", "Seat-seconds of 24 h", "Booked ahead", "Moved in 24 h", "Budgets"];
const LAST = HEADS.length - 1;
// What is not limited at each instant.
const OVER_TIME = /seconds$|^delivered_|^bytes$|^seat_hours$/u;

export function open(box, { api, model }) {
  let signature = "";
  return {
    events: ["campaign", "reservation"],
    gap: 60_000,
    async fetch() {
      const first = Math.floor(model.now() / HOUR) * HOUR - BACK * HOUR;
      const [from, to] = [first, first + HOURS * HOUR].map((instant) => new Date(instant).toISOString());
      const path = `/v1/schedule?from=${from}&to=${to}&resolution=PT1H`;
      const [{ buckets }, usage, campaigns] = await Promise.all([api.get(path), hoursOf(api, from, to), api.get("/v1/campaigns?limit=200&budgets=true")]);
      setCall(path);
      const next = JSON.stringify([first, buckets, usage, campaigns.items]);
      if (next === signature) return;
      signature = next;
      drawAll({ buckets, usage, campaigns: campaigns.items, first });
    },
  };

  function drawAll({ buckets, usage, campaigns, first }) {
    const scrolled = box.querySelector(".heat")?.scrollLeft;
    const names = byShare(usage);
    box.replaceChildren(
      section("Occupied share of each hour", heat(buckets, first, model.now()), "Exclusive runs leave no time to others; normal and background runs overlap."),
      section("Who takes it", usage.length ? takers(usage, names, first, model.now()) : element("p", { class: "empty" }, "No campaign has used or booked any time."), "Seat-seconds on all nodes that tasks of this node use: 3,600 are one exclusive run on one node for an hour. Pale: booked ahead."),
      section("Campaigns and budgets", budgets(campaigns, usage, names, model.now()), "Bars: what is used now, paler what is booked, and a line at the promised share or the soft limit."),
    );
    showHour(box.querySelector(".heat"), scrolled);
  }
}

async function hoursOf(api, from, to) {
  const path = `/v1/usage?since=${from}&until=${to}&limit=500`;
  const items = [];
  let next = null;
  let pages = 0;
  do {
    const page = await api.get(next ? `${path}&cursor=${next}` : path);
    items.push(...page.items);
    next = page.next;
    pages += 1;
  } while (next && pages < USAGE_PAGES);
  return items;
}

// On a narrow screen the table begins shortly before the current hour, unless the reader has moved it.
function showHour(table, scrolled) {
  const current = table.querySelector("th.current");
  table.scrollLeft = scrolled ?? current.offsetLeft - table.clientWidth / 2;
}

function section(heading, content, hint) {
  return element("section", { class: "found" }, element("h3", {}, heading), content, hint && element("p", { class: "hint" }, hint));
}

function byShare(usage) {
  const sums = new Map();
  for (const { campaign, seat_seconds: seconds } of usage) sums.set(campaign, (sums.get(campaign) ?? 0) + seconds);
  return [...sums].sort(([, one], [, other]) => other - one).map(([name]) => name);
}

// A row for each class, a cell for each hour; the figure is in the cell for those who do not see its shade.
function heat(buckets, first, now) {
  const at = new Map(buckets.map((bucket) => [`${bucket.scheduling_class} ${Date.parse(bucket.starts_at)}`, bucket]));
  const hours = Array.from({ length: HOURS }, (_, index) => first + index * HOUR);
  const current = Math.floor(now / HOUR) * HOUR;
  const heads = hours.map((hour, index) => element("th", { scope: "col", class: hour === current ? "current" : null }, index % 6 === 0 ? shortTimeOf(hour) : element("span", { class: "unseen" }, shortTimeOf(hour))));
  const rows = LANES.map((lane) => {
    const cells = hours.map((hour) => {
      const bucket = at.get(`${lane} ${hour}`);
      const busy = bucket?.busy ?? 0;
      const runs = Object.values(bucket?.runs ?? {}).reduce((sum, count) => sum + count, 0);
      const share = `${Math.round(100 * busy)} %`;
      const shade = busy === 0 ? 0 : Math.max(1, Math.round(busy * STEPS));
      const title = `${lane}, ${momentOf(hour, now)}: ${share} occupied, ${runs} runs`;
      return element("td", { class: `shade-${Math.min(STEPS, shade)}${hour === current ? " current" : ""}`, title }, element("span", { class: "unseen" }, share));
    });
    return element("tr", {}, element("th", { scope: "row" }, lane), cells);
  });
  const days = `${dateOf(first)} to ${dateOf(first + HOURS * HOUR)}`;
  const table = element("table", {}, element("caption", { class: "unseen" }, `Occupied share, ${days}`), element("thead", {}, element("tr", {}, element("td", {}), heads)), element("tbody", {}, rows));
  return element("div", { class: "heat", tabindex: "0", role: "group", "aria-label": "Occupied share by class and hour" }, table);
}

// The seat-seconds of each campaign in each hour, one above the other.
function takers(usage, names, first, now) {
  const at = new Map(names.map((name) => [name, new Array(HOURS).fill(0)]));
  for (const { campaign, starts_at: starts, seat_seconds: seconds } of usage) {
    const hour = Math.round((Date.parse(starts) - first) / HOUR);
    if (hour >= 0 && hour < HOURS) at.get(campaign)[hour] += seconds;
  }
  const times = Array.from({ length: HOURS }, (_, index) => first + index * HOUR);
  const lines = names.map((name) => ({ title: name, values: at.get(name) }));
  const box = element("div", { class: "plot takers" });
  const label = `Seat-seconds of each hour by campaign: ${names.join(", ")}`;
  queueMicrotask(() => plotStacks(box, { times, length: HOUR, lines, unit: "s", ahead: first + BACK * HOUR }, { now, label }));
  return box;
}

function budgets(campaigns, usage, names, now) {
  const sum = (name, has) => usage.filter((hour) => hour.campaign === name && has(Date.parse(hour.starts_at))).reduce((total, { seat_seconds: seconds }) => total + seconds, 0);
  const rank = ({ name }) => (names.includes(name) ? names.indexOf(name) : names.length);
  const rows = [...campaigns].sort((one, other) => rank(one) - rank(other) || (one.name < other.name ? -1 : 1)).map((campaign) => {
    const [had, booked] = [sum(campaign.name, (at) => at < now), sum(campaign.name, (at) => at >= now)];
    const cells = [element("b", { class: "test" }, campaign.name), `${Math.round(had)} s`, `${Math.round(booked)} s`, bytes(campaign.used.delivered_bytes), budgetsOf(campaign)];
    return element("tr", { role: "row" }, cells.map((content, index) => element("td", { role: "cell", "data-head": index && index < LAST ? HEADS[index] : null }, content)));
  });
  const heads = HEADS.map((words) => element("th", { scope: "col", role: "columnheader" }, words));
  return element("div", { class: "matrix-free campaigns-used", tabindex: "0", role: "group", "aria-label": "Campaigns and budgets" }, element("table", { class: "plain-table", role: "table" }, element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, heads)), element("tbody", { role: "rowgroup" }, rows)));
}

function budgetsOf({ used, budgets, target, warnings, limits }) {
  const due = Object.keys(limits).filter((what) => what.startsWith("due_"));
  const lines = [
    used.promised === null ? null : shareLine(used, target),
    ...budgets.map(budgetLine),
    due.length ? element("p", { class: "hint" }, `${due.map((what) => what.replaceAll("_", " ")).join(", ")} limit what is considered, not what is used`) : null,
    ...warnings.map((words) => element("p", { class: "caution" }, icon("alert"), words)),
  ].filter(Boolean);
  return element("div", { class: "budgets" }, lines);
}

// Its share of the last day against the promised one, on a scale up to all of it.
function shareLine(used, target) {
  const promise = target && (target.seats === null ? `, promised ${percent(target.share)} for sure` : `, promised ${target.seats} seats`);
  const had = used.delivered === null ? "nobody had any time in 24 h" : `${percent(used.delivered)} had in 24 h`;
  const words = `share: ${had}, ${percent(used.promised)} by weight${promise ?? ""}`;
  return line(words, { used: used.delivered ?? 0, peak: used.booked ?? 0, marks: [used.promised], most: 1, level: "" });
}


function budgetLine({ what, soft, hard, used, peak, period, until }) {
  const most = hard ?? soft;
  const both = soft !== null && hard !== null;
  const [level, state] = standingOf(peak, most, both ? soft : most);
  const of = both ? `${amount(what, soft)} soft, ${amount(what, hard)} hard` : amount(what, most);
  const words = `${what.replaceAll("_", " ")}: ${amount(what, used)} of ${of}${withinWords(what, period)}${until ? ` until ${dateOf(Date.parse(until))}` : ""}${state}`;
  const later = peak > used ? `, at most ${amount(what, peak)} with what is booked` : "";
  return line(words + later, { used, peak, marks: both ? [soft] : [], most: Math.max(most, peak), level });
}

function standingOf(peak, most, soft) {
  if (peak > most) return ["bad", " (over its limit)"];
  if (peak === most) return ["fair", " (used up)"];
  return peak > soft ? ["fair", " (over its soft limit)"] : ["", ""];
}

function withinWords(what, period) {
  if (period) return ` in ${spell(parseDuration(period) ?? 0)}`;
  return OVER_TIME.test(what) ? "" : " at once";
}

function amount(what, value) {
  if (what === "bytes") return bytes(value);
  if (what === "delivered_percent") return `${Number(value.toFixed(1))} %`;
  return what.endsWith("seconds") ? spell(value * 1000) : String(Number(value.toPrecision(3)));
}

// A bar with the use of now, paler what is booked, and marks; the words beside it have the same figures.
function line(words, { used, peak, marks, most, level }) {
  const at = (value) => (100 * Math.min(value, most)) / (most || 1);
  const svg = vector("svg", { class: `bar budget ${level}`, viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" });
  svg.append(vector("rect", { class: "track", width: 100, height: 8 }), vector("rect", { class: "part ahead", width: at(peak), height: 8 }), vector("rect", { class: "part", width: at(used), height: 8 }));
  for (const each of marks) svg.append(vector("rect", { class: "mark", x: Math.min(99, at(each) - 0.5), width: 1, height: 8 }));
  return element("div", { class: "budget-line" }, svg, element("span", { class: level || null }, level ? icon("alert") : null, words));
}

const percent = (part) => `${Number((100 * part).toFixed(1))} %`;
