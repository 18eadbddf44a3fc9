// The pieces that lists, drawer and timeline share: a state, a time, a run's name.

import { element, hosts, icon } from "./dom.js";
import { age, between, distance, momentOf, spell, stateOf, utcOf } from "./words.js";

/** Icon and word of a state; the colour only repeats what they say. */
export function stateBadge(name) {
  const { word, kind, icon: picture } = stateOf(name);
  return element("span", { class: `state ${kind}` }, icon(picture), word);
}

/** A mark on a result that is not clean, with all reasons in its title; nothing on others. */
export function doubt(verdict, reasons) {
  if (!verdict || verdict === "clean") return null;
  return element("p", { class: `doubt ${verdict}`, title: reasons.join("; ") }, icon("alert"), `${verdict}: ${reasons[0]}`);
}

/** A local time; UTC is in its title. */
export function timeElement(instant, now) {
  return element("time", { datetime: utcOf(instant), title: utcOf(instant) }, momentOf(instant, now));
}

const TICKS = {
  distance: (instant, now) => distance(instant, now),
  age: (instant, now) => age(instant, now),
  left: (instant, now) => (instant > now ? `${spell(instant - now)} left` : "about to end"),
};

/** Text that follows the clock: "in 4 min 12 s", "3 min ago", "12 s left". */
export function ticking(manner, instant, now) {
  const text = TICKS[manner](instant, now);
  return element("span", { class: "ticking", "data-tick": manner, "data-instant": instant }, text);
}

/** Brings every text that follows the clock, and every progress bar, up to now. */
export function tick(now) {
  for (const target of document.querySelectorAll("[data-tick]")) {
    const text = TICKS[target.dataset.tick](Number(target.dataset.instant), now);
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

/** A test and between whom, as one line. */
export function runName(entry, spec) {
  const whom = between(entry.participants, spec);
  return [element("b", { class: "test" }, entry.test), " ", element("span", { class: "whom" }, hosts(whom))];
}

/** A link to a document of the API, and how to fetch it from a terminal. */
export function apiCall(path) {
  return element(
    "details",
    { class: "call" },
    element("summary", {}, "show API call"),
    element("p", {}, element("a", { href: path }, `GET ${path}`)),
    element("pre", {}, `curl -s '${location.origin}${path}'`),
  );
}
