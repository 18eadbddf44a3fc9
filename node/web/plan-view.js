// A plan: when a task would run, who would give way, and what else would find time.

import { element, icon } from "./dom.js";
import { timeElement } from "./parts.js";
import { readable, spell, parseDuration } from "./words.js";

/** @typedef {{ [name: string]: any }} Json */

const STARTS = 5;
const REASONS = 3;
const GIVING_WAY = 6;
/** @type {Record<string, [string, string]>} */
const LOOKS = {
  found: ["done", "check"],
  partly: ["missed", "alert"],
  "beyond-horizon": ["done", "clock"],
  "no-time": ["missed", "alert"],
  refused: ["failed", "cross"],
  unreachable: ["failed", "cross"],
  clock: ["failed", "cross"],
};

/**
 * Draws a plan. `take(alternative)` is called when the reader chooses an alternative.
 * @param {Json} plan
 * @param {(alternative: Json) => void} take
 */
export function planView(plan, take) {
  const now = Date.parse(plan.now);
  const [kind, picture] = LOOKS[plan.outcome] ?? ["gone", "dash"];
  return [
    element("p", { class: `verdict ${kind}` }, icon(picture), element("span", {}, readable(plan.sentence, now))),
    element("p", { class: "hint" }, cost(plan)),
    section("Starts", starts(plan, now)),
    section("Seats", seats(plan)),
    section("Would wait", waiting(plan, now)),
    section("Would give way", givingWay(plan, now)),
    section("Do not take part", refusals(plan, now)),
    section("How full the nodes get", occupancy(plan)),
    alternatives(plan, now, take),
  ].filter(Boolean);
}

/** @param {string} title @param {(Node | string | null)[][]} lines */
function section(title, lines) {
  if (!lines.length) return null;
  return element("section", {}, element("h3", {}, title), element("ul", {}, lines.map((line) => element("li", {}, line.filter(Boolean)))));
}

/** @param {Json} plan */
function cost({ duration, scheduling_class: lane, tool }) {
  const takes = `Takes ${spell(parseDuration(duration) ?? 0)} on each node, ${lane}`;
  return `${takes}${tool ? `, with ${tool}` : ""}. Nothing is booked yet.`;
}

/** @param {Json} plan @param {number} now */
function starts(plan, now) {
  const lines = plan.starts.slice(0, STARTS).map((/** @type {Json} */ start) => {
    const late = Date.parse(start.starts_at) - Date.parse(start.slot);
    const notes = [
      late >= 1000 ? `${spell(late)} after its nominal start` : "",
      start.displacing ? "lower priorities give way" : "",
      start.nodes.join(", "),
    ].filter(Boolean);
    return [timeElement(Date.parse(start.starts_at), now), notes.length ? ` ${notes.join("; ")}` : null];
  });
  const more = plan.placed - lines.length;
  if (more > 0) lines.push([`and ${more} more`]);
  if (plan.drawn && lines.length) lines.push(["Drawn at random: the task will get others."]);
  return lines;
}

/** @param {Json} plan */
function seats(plan) {
  const first = plan.seats.filter((/** @type {Json} */ seat) => seat.term === plan.seats[0].term);
  return first.map((/** @type {Json} */ { number, node, reason }) => {
    return [`${number}: `, element("b", {}, node ?? "nobody"), reason ? element("p", { class: "reason" }, reason) : null];
  });
}

/** @param {Json} plan @param {number} now */
function waiting(plan, now) {
  if (plan.asked === 1) return [];
  const lines = plan.unplaced.slice(0, REASONS).map((/** @type {Json} */ { slot, reason }) => {
    return [timeElement(Date.parse(slot), now), element("p", { class: "reason" }, readable(reason, now))];
  });
  const more = plan.asked - plan.placed - lines.length;
  if (lines.length && more > 0) lines.push([`and ${more} more`]);
  return lines;
}

/** @param {Json} plan @param {number} now */
function givingWay(plan, now) {
  const lines = plan.displaced.slice(0, GIVING_WAY).map((/** @type {Json} */ lost) => {
    const what = lost.test ? `${lost.test} (priority ${lost.priority})` : `a ${lost.scheduling_class} run of another node`;
    return [element("b", {}, lost.name), `: ${what}, `, timeElement(Date.parse(lost.starts_at), now)];
  });
  const more = plan.displaced_count - lines.length;
  if (more > 0) lines.push([`and ${more} more`]);
  return lines;
}

/** @param {Json} plan @param {number} now */
function refusals(plan, now) {
  const others = plan.participants.filter((/** @type {Json} */ { answer }) => !["accepts", "not-chosen"].includes(answer));
  return others.map((/** @type {Json} */ { name, answer, reason }) => {
    return [element("b", {}, name), ` ${answer}`, reason ? element("p", { class: "reason" }, readable(reason, now)) : null];
  });
}

/** @param {Json} plan */
function occupancy(plan) {
  const busy = plan.occupancy.filter((/** @type {Json} */ { added_s: added }) => added !== 0);
  return busy.map((/** @type {Json} */ { name, before, after }) => {
    return [element("b", {}, name), `: ${percent(before)} → ${percent(after)} of the next 24 h`];
  });
}

/** @param {number} part */
const percent = (part) => `${Number((100 * part).toPrecision(2))} %`;

/** @param {Json} plan @param {number} now @param {(alternative: Json) => void} take */
function alternatives(plan, now, take) {
  const buttons = plan.alternatives.map((/** @type {Json} */ alternative) => {
    const at = timeElement(Date.parse(alternative.starts_at), now);
    const part = alternative.placed < alternative.asked ? `, ${alternative.placed} of ${alternative.asked} runs` : "";
    const take_ = element("button", { type: "button", class: "plain", click: () => take(alternative) }, readable(alternative.differs, now));
    return [take_, " ", element("small", {}, "from ", at, part)];
  });
  const none = plan.no_alternatives.map((/** @type {Json} */ { kind, reason }) => {
    return [element("small", { class: "reason" }, `${kind}: ${readable(reason, now)}`)];
  });
  const made = section("What would find time", [...buttons, ...none]);
  made?.classList.add("alternatives");
  return made;
}
