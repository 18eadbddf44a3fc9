// The list of causes for which runs had no result, each with its runs folded behind it.

import { byCause } from "./causes.js";
import { element, icon } from "./dom.js";
import { followUpList, headlineOf, runBadge, ticking } from "./parts.js";
import { hrefOf } from "./place.js";
import { readable } from "./words.js";

const RUNS_SHOWN = 30;

const ASKED_MOST = 100;

/** Returns the sentences on what is common to what fails now, of some tasks; none to those who see their own tasks only. */
export async function commonCauses(api, caller, tasks = []) {
  const { role } = caller ?? (await api.get("/v1/tokens/self"));
  if (role === "run") return [];
  const query = tasks.length ? `?task=${tasks.slice(0, ASKED_MOST).join()}` : "";
  const { causes } = await api.get(`/v1/outcomes${query}`);
  return causes.map(({ sentence }) => sentence);
}

/** Returns the sentences on what is common to what fails, as they are listed first; null if there are none. */
export function commonList(sentences, now) {
  if (!sentences.length) return null;
  return element("ul", { class: "attention" }, sentences.map((sentence) => element("li", { class: "missed" }, icon("alert"), readable(sentence, now))));
}

/** Returns the causes of runs, the most frequent first; those whose keys are in `open` are unfolded. */
export function causeList(entries, open, now, { shown = 20 } = {}) {
  const groups = byCause(entries);
  const left = groups.length - shown;
  const rest = left > 0 ? element("li", { class: "reason" }, `and ${left} more cause${left === 1 ? "" : "s"}`) : null;
  return element("ul", { class: "causes" }, groups.slice(0, shown).map((group) => causeItem(group, open, now)), rest);
}

function causeItem({ key, cause, entries }, open, now) {
  const [newest] = entries;
  const count = new Set(entries.map(({ headline }) => headline)).size;
  const words = entries.length === 1 ? readable(newest.reason ?? cause, now) : cause;
  const runs = entries.slice(0, RUNS_SHOWN).map((entry) => element(
    "li",
    {},
    element("a", { href: hrefOf({ run: entry.id }) }, headlineOf(entry)),
    " ",
    ticking("age", entry.starts, now),
    " ",
    element("span", { class: "reason" }, readable(entry.reason ?? "", now)),
  ));
  return element(
    "li",
    { class: newest.kind },
    element(
      "details",
      { "data-key": key, open: open.has(key) },
      element("summary", {}, element("b", { class: "count" }, `${entries.length} ×`), " ", runBadge(newest), " ", element("span", { class: "cause" }, words)),
      element("ul", {}, runs),
    ),
    followUpList(entries.find(({ followedBy }) => followedBy?.length)?.followedBy, now),
    element("p", { class: "hint" }, count === 1 ? headlineOf(newest) : `${count} different measurements`, ", last ", ticking("age", newest.starts, now)),
  );
}
