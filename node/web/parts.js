// Elements that lists, drawer and timeline share: a state, a time, a run's name.

import { element, hosts, icon } from "./dom.js";
import { LOOKS, lookOfResult } from "./outcomes.js";
import { hrefOf } from "./place.js";
import { age, distance, momentOf, partsOf, readable, spell, stateOf, utcOf } from "./words.js";

/** Creates icon and word of a state; the colour is redundant. */
export function stateBadge(name) {
  return badge(stateOf(name));
}

/** Creates icon and word of a run: of its state, or of a result that is not good. */
export function runBadge(run) {
  const look = lookOfResult(run);
  return look ? badge(look) : stateBadge(run.state);
}

/** Creates icon and word of a judgement of the node, or of a pair that was refused. */
export function outcomeBadge(name) {
  return badge(LOOKS[name]);
}

const badge = ({ word, kind, icon: picture }) => element("span", { class: `state ${kind}` }, icon(picture), word);

/** Creates a mark for a result that is not clean, with all reasons in its title; null for others. */
export function doubt(verdict, reasons, now) {
  if (!verdict || verdict === "clean") return null;
  const sentences = reasons.map((reason) => readable(reason, now));
  return element("p", { class: `doubt ${verdict}`, title: sentences.join("; ") }, icon("doubt"), [verdict, sentences[0]].filter(Boolean).join(": "));
}

/** Creates a local time, with UTC in its title. */
export function timeElement(instant, now) {
  return element("time", { datetime: utcOf(instant), title: utcOf(instant) }, momentOf(instant, now));
}

const TICKS = {
  distance: (instant, now) => distance(instant, now),
  age: (instant, now) => age(instant, now),
  left: (instant, now) => (instant > now ? `${spell(instant - now)} left` : "about to end"),
};

/** Creates a text that is updated by the clock: "in 4 min 12 s", "3 min ago", "12 s left". */
export function ticking(manner, instant, now) {
  const text = TICKS[manner](instant, now);
  return element("span", { class: "ticking", "data-tick": manner, "data-instant": instant }, text);
}

/** Updates every text that depends on the clock, and every progress bar. */
export function tick(now) {
  for (const target of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-tick]"))) {
    const text = TICKS[target.dataset.tick ?? ""](Number(target.dataset.instant), now);
    if (target.textContent !== text) target.textContent = text;
  }
  for (const bar of document.querySelectorAll("progress")) {
    bar.value = Math.min(Number(bar.max), Math.max(0, now - Number(bar.dataset.from)));
  }
}

export function progressBar(entry, now) {
  const span = Math.max(1, entry.ends - entry.starts);
  const label = `Progress of ${entry.test}`;
  const bar = element("progress", { max: span, "data-from": entry.starts, "aria-label": label });
  bar.value = Math.min(span, Math.max(0, now - entry.starts));
  return bar;
}

/** Creates the headline of a run or a task. */
export function headlineOf({ headline }) {
  const { test, ends } = partsOf(headline);
  return [element("b", { class: "test" }, test), " ", element("span", { class: "whom" }, hosts(ends))];
}

/** Creates the list of the runs that follow one: what they measured, or why nothing yet; null if none does. */
export function followUpList(following, now) {
  if (!following?.length) return null;
  const items = following.map((each) => element(
    "li",
    {},
    "followed by ",
    element("a", { href: hrefOf({ run: each.run }) }, headlineOf(each)),
    " ",
    runBadge(each),
    " ",
    element("span", { class: "reason" }, each.summary ?? readable(each.reason ?? "", now)),
  ));
  return element("ul", { class: "follow-ups" }, items);
}

/** Creates a link to a document of the API, and the command that fetches it. */
export function apiCall(path) {
  return element(
    "details",
    { class: "call" },
    element("summary", {}, "show API call"),
    element("p", {}, element("a", { href: path }, `GET ${path}`)),
    element("pre", {}, `curl -s '${location.origin}${path}'`),
  );
}
