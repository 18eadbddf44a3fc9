// The drawer: all about one run, with the reason first and every decision that led to it.

import { chart, intervalsMeasured } from "./chart.js";
import { byId, element, icon } from "./dom.js";
import { drawRuns } from "./lists.js";
import { apiCall, followUpList, headlineOf, runBadge, timeElement } from "./parts.js";
import { lookOfResult } from "./outcomes.js";
import { endsOf } from "./pairs.js";
import { addressOf, hrefOf } from "./place.js";
import { plotHistogram } from "./plot.js";
import { tracePicture } from "./trace-picture.js";
import { known, tree } from "./tree.js";
import { momentOf, readable, spell, stateOf } from "./words.js";

// Number of intervals in the chart that are also listed.
const INTERVALS_LISTED = 20;

/** Opens the drawer unless it is open. */
export function openDrawer() {
  const drawer = byId("drawer");
  if (!drawer.open) drawer.showModal();
}

export function closeDrawer() {
  const drawer = byId("drawer");
  if (drawer.open) drawer.close();
  drawer.removeAttribute("data-shown");
}

function show(key, title, content) {
  byId("drawer").dataset.shown = key;
  delete byId("drawer").dataset.signature;
  byId("drawer-title").replaceChildren(...title);
  byId("drawer-body").replaceChildren(...content.filter(Boolean));
}

export function showMessage(key, sentence) {
  show(key, ["Run"], [element("p", { class: "verdict" }, sentence)]);
}

/** Shows the runs of a span of one lane, or those that failed. */
export function showRuns(key, title, entries, model) {
  const same = byId("drawer").dataset.shown === key;
  const box = same ? byId("drawer-body").firstElementChild : element("div");
  drawRuns(box, entries, model);
  if (!same) show(key, [title], [box]);
}

/**
 * Shows a run with its parts, task (if known), explanation, buttons, course of figures, and last intervals.
 * @param {any} run
 * @param {{ task?: any, explanation?: any, buttons?: any }} known
 * @param {{ course: any, intervals: any[] }} figures
 * @param {number} now
 */
export function showRun(run, { task = null, explanation = null, buttons = null }, { course, intervals }, now) {
  // Redraw only if something changed: what the reader unfolded stays unfolded.
  const drawer = byId("drawer");
  const signature = JSON.stringify([run, explanation, buttons?.textContent, course, intervals]);
  if (drawer.dataset.signature === signature) return;
  const spec = task?.test.spec;
  show(`run ${run.id}`, headlineOf(run), [
    element("p", { class: "overview" }, runBadge(run), " ", span(run, now)),
    verdict(run, explanation, now),
    buttons,
    trust(run, now),
    section("Course up to this run", chart(course, { now, shown: run.id })),
    section("Result", treeOf(run.result)),
    section("Histogram", histogram(run, task)),
    section("Course of its intervals", chart(intervalsMeasured(intervals, run), { now, what: "intervals" })),
    section("Last intervals", intervals.length ? intervalList(intervals.slice(0, INTERVALS_LISTED), now) : null),
    section("Measured because of it", followUpList(run.followed_by, now)),
    section("Facts", facts(run, task, now)),
    section("Parts", parts(run.parts ?? [], now)),
    section("Why", why(explanation, Date.parse(run.slot), now)),
    section("Spec", treeOf(spec)),
    apiCall(`/v1/runs/${run.id}`),
  ]);
  drawer.dataset.signature = signature;
}

// The packets by delay of a latency run, one line for each direction; there and back together are told by their figures.
function histogram(run, task) {
  const known = run.result?.histogram;
  const ends = endsOf(task ?? run) ?? ["source", "dest"];
  if (!known?.forward && !known?.backward) return null;
  const lines = [
    { title: ends.join(" → "), histogram: known.forward },
    { title: [...ends].reverse().join(" → "), histogram: known.backward },
  ].filter((line) => line.histogram);
  const box = element("div", { class: "plot" });
  queueMicrotask(() => plotHistogram(box, lines, `Packets by delay, ${lines.map(({ title }) => title).join(", ")}`));
  return box;
}

// The tree of an object without its null fields, and without what is drawn; null if all are null.
function treeOf(value) {
  const { histogram: _, ...others } = value ?? {};
  const fields = known(others);
  return Object.keys(fields).length ? tree(fields) : null;
}

function section(heading, content) {
  return content && element("section", {}, element("h3", {}, heading), content);
}

function span(run, now) {
  const [starts, ends] = [Date.parse(run.starts_at), Date.parse(run.ends_at)];
  return element("span", {}, timeElement(starts, now), " – ", timeElement(ends, now), `, ${spell(ends - starts)}`);
}

// The sentence about the outcome: the reason, else the result, else the explanation.
function verdict(run, explanation, now) {
  const { kind, icon: picture } = lookOfResult(run) ?? stateOf(run.state);
  const sentence = run.reason ?? run.outcome?.reason ?? run.summary ?? explanation?.sentence;
  return sentence && element("p", { class: `verdict ${kind}` }, icon(picture), element("span", {}, readable(sentence, now)));
}

// The verdict on the result, with its reasons.
function trust(run, now) {
  if (!run.verdict) return null;
  if (run.verdict === "clean") return element("p", { class: "hint" }, "Clean: no known disturbance.");
  const reasons = run.verdict_reasons.map((reason) => element("li", {}, readable(reason, now)));
  const head = element("p", { class: `doubt ${run.verdict}` }, icon("doubt"), `${run.verdict}, because`);
  return element("section", { class: "trust" }, head, element("ul", {}, reasons));
}

/** Returns the attempts of a slot that was tried again, each with what became of it. */
function attemptList(run) {
  const own = { run: run.id, attempt: run.attempt, state: run.state, reason: null };
  const every = [...run.attempts, own].sort((one, other) => one.attempt - other.attempt);
  return element("ul", { class: "attempts" }, every.map(({ run: id, attempt, state, reason }) => element(
    "li",
    {},
    id === run.id ? `${attempt} ${stateOf(state).word}: this run` : element("a", { href: hrefOf({ run: id }) }, `${attempt} ${stateOf(state).word}`),
    reason && `: ${reason}`,
  )));
}

function facts(run, task, now) {
  const when = (text) => timeElement(Date.parse(text), now);
  const rows = [
    ["Nominal start", when(run.slot)],
    ["Slots", run.last_slot && `${run.slots}, the last one at ${momentOf(Date.parse(run.last_slot), now)}`],
    ["Started", run.started_at && when(run.started_at)],
    ["Start error", run.start_error_ms !== null && `${run.start_error_ms.toFixed(2)} ms`],
    ["Finished", run.finished_at && when(run.finished_at)],
    ["Class", run.scheduling_class],
    ["Priority", String(run.priority)],
    ["Tool", run.tool],
    ["Attempts", run.attempts?.length && attemptList(run)],
    ["Planned by", run.lead],
    ["Requested by", run.requester],
    ["This node is", run.participant === null ? "only the lead" : `participant ${run.participant}`],
    ["Asked by", run.asked_by && idLink(hrefOf({ run: run.asked_by }), run.asked_by)],
    ["Displaced by", run.displaced_by && idLink(hrefOf({ run: run.displaced_by }), run.displaced_by)],
    ["Campaign", task?.campaign],
    ["Task", idLink(addressOf({ task: run.task }), run.task, "only its runs")],
    ["Pair", pairLink(task ?? run)],
    ["Seat of", task?.parent && idLink(addressOf({ task: task.parent }), task.parent, "only their runs")],
    ["Run", element("code", {}, run.id)],
  ];
  const known = rows.filter(([, value]) => value);
  return element(
    "dl",
    { class: "facts" },
    known.map(([term, value]) => element("div", {}, element("dt", {}, term), element("dd", {}, value))),
  );
}

function pairLink(measured) {
  const ends = endsOf(measured);
  return ends && element("a", { href: addressOf({ view: "pair", source: ends[0], dest: ends[1] }) }, "over time, both ways");
}

function idLink(href, id, words) {
  const code = element("code", {}, id);
  const link = element("a", { href }, words ?? code);
  return words ? element("span", {}, code, " ", link) : link;
}

function parts(all, now) {
  if (!all.length) return null;
  return element("ul", { class: "parts" }, all.map((part) => element("li", {}, partOf(part, now))));
}

// Newest first; a gap shows its reason, and a result can be unfolded.
function intervalList(intervals, now) {
  return element("ul", { class: "parts" }, intervals.map((interval) => element("li", {}, intervalOf(interval, now))));
}

function intervalOf(interval, now) {
  const gap = interval.result === null;
  return [
    element(
      "p",
      { class: `part ${gap ? "failed" : "done"}` },
      icon(gap ? "cross" : "check"),
      timeElement(Date.parse(interval.starts_at), now),
      " ",
      interval.summary ?? readable(interval.reason ?? "", now),
    ),
    !gap && interval.reason ? element("p", { class: "reason" }, readable(interval.reason, now)) : null,
    interval.result && folded(`Interval ${interval.number}`, tree(known(interval.result))),
  ].filter(Boolean);
}

function partOf(part, now) {
  const failed = part.reason !== null;
  const times = [part.started_at, part.finished_at].filter(Boolean).map(Date.parse);
  const words = times.length ? times.map((time) => momentOf(time, now)).join(" – ") : "did not start";
  return [
    element(
      "p",
      { class: `part ${failed ? "failed" : "done"}` },
      icon(failed ? "cross" : "check"),
      element("b", {}, part.name),
      ` participant ${part.participant}, ${words}`,
    ),
    failed ? element("p", { class: "reason" }, readable(part.reason, now)) : null,
    part.command && element("pre", {}, part.command.join(" ")),
    part.output && folded("Program output", element("pre", {}, part.output)),
    part.result && folded("Result of this part", tree(known(part.result))),
    part.circumstances && folded("Its host during the run", tree(part.circumstances)),
  ].filter(Boolean);
}

function folded(summary, content) {
  return element("details", {}, element("summary", {}, summary), content);
}

function why(explanation, around, now) {
  if (!explanation) return null;
  const decisions = explanation.decisions.map((decision, index) => decisionOf(decision, { around, first: index === 0 }, now));
  return element(
    "div",
    {},
    element("p", {}, readable(explanation.sentence, now)),
    decisions.length ? element("ol", { class: "decisions" }, decisions) : null,
    apiCall(explanation.run ? `/v1/runs/${explanation.run}/explain` : `/v1/tasks/${explanation.task}/explain`),
  );
}

// The newest decision is shown as a picture, the pictures of the others are folded.
function decisionOf(decision, { around, first }, now) {
  const picture = tracePicture(decision.trace, around, now);
  const decided = Date.parse(decision.decided_at);
  const slots = [decision.first_slot, decision.last_slot].filter(Boolean).map(Date.parse);
  const reach = slots.length ? `, nominal starts ${[...new Set(slots.map((slot) => momentOf(slot, now)))].join(" to ")}` : "";
  const often = decision.times > 1 ? `, ${decision.times} times since ${momentOf(Date.parse(decision.first_at), now)}` : "";
  return element(
    "li",
    {},
    element("p", {}, element("b", {}, decision.outcome), " ", timeElement(decided, now), often),
    element("p", {}, readable(decision.sentence, now)),
    element("p", { class: "hint" }, `${decision.placed} of ${decision.asked} ${decision.trace.pool ? "seats given" : "runs placed"}${reach}`),
    picture && (first ? picture : folded("Who was busy when", picture)),
    folded(decision.trace.pool ? "Seats, refusals and verdicts" : "Windows, offers and obstacles", tree(decision.trace)),
  );
}
