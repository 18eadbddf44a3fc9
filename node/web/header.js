// The head of the page: the node, its clock, its counts, its peers, and the connection.

import { byId, element, icon, reconcile, refill, setText } from "./dom.js";
import { addressOf, hrefOf } from "./place.js";
import { distance, momentOf, readable, timeOf, utcOf, zone } from "./words.js";

// Things that need attention are listed on the overview, at most so many.
const ATTENTION_MOST = 3;

export function drawSelf(card) {
  setText(byId("node-name"), card.name);
  setText(byId("node-detail"), [`Parley ${card.version}`.trim(), card.address].join(" · "));
  document.title = `${card.name} · Parley`;
}

/** Draws the node's time in the reader's zone, with UTC in its title. */
export function drawClock(now) {
  const clock = byId("clock");
  setText(clock, timeOf(now));
  clock.title = utcOf(now);
}

export function drawClockState(state) {
  const sync = { true: "synchronised", false: "not synchronised" }[state.synchronised] ?? "synchronisation unknown";
  const bound = state.error_bound_ms === null ? "" : ` ±\u00a0${state.error_bound_ms.toFixed(1)}\u00a0ms`;
  const detail = byId("clock-detail");
  setText(detail, `${zone} · clock ${sync}${state.synchronised ? bound : ""}`);
  detail.classList.toggle("warning", state.synchronised === false);
}

export function drawCounts(counts) {
  setText(byId("count-running"), String(counts.running));
  setText(byId("count-due"), String(counts.due));
  setText(byId("count-finished"), String(counts.finished));
  const bad = counts.failed + counts.missed;
  const tile = byId("failed-tile");
  tile.classList.toggle("bad", counts.failed > 0);
  tile.classList.toggle("missing", bad > 0 && !counts.failed);
  const target = byId("count-failed");
  const missed = counts.missed && counts.failed ? ` + ${counts.missed} missed` : "";
  setText(tile.querySelector("dt"), bad && !counts.failed ? "missed in 24 h" : "wrong in 24 h");
  const shown = `${counts.failed} ${counts.missed}`;
  if (target.dataset.shown === shown) return;
  target.dataset.shown = shown;
  if (!bad) return target.replaceChildren("0");
  const extra = missed ? element("small", {}, missed) : null;
  const link = element("a", { href: hrefOf({ list: "failed" }), title: "Show them" });
  link.append(icon(counts.failed ? "cross" : "alert"), String(counts.failed || counts.missed), ...(extra ? [extra] : []));
  return target.replaceChildren(link);
}

// Of more nodes than these, the reachable ones are only counted.
const NODES_NAMED = 8;
const AWAY_NAMED = 5;

/** Draws the known nodes, unreachable ones first. */
export function drawNodes(nodes, now) {
  const others = nodes.filter((node) => !node.is_self);
  const list = byId("nodes");
  if (!others.length) {
    const code = element("code", {}, "parley node add URL");
    list.replaceChildren(element("li", { class: "none" }, "none yet: ", code));
    return;
  }
  others.sort((one, other) => Number(Boolean(other.unreachable_since)) - Number(Boolean(one.unreachable_since)));
  const away = others.filter((node) => node.unreachable_since);
  const named = others.length <= NODES_NAMED ? others : away.slice(0, AWAY_NAMED);
  const left = others.length - named.length;
  const rest = left ? [{ identity: "rest", rest: countWords(left, away.length - named.filter((node) => node.unreachable_since).length) }] : [];
  reconcile(list, [...named, ...rest], {
    key: (node) => node.identity,
    signature: (node) => JSON.stringify([node.rest ?? node.name, node.unreachable_since, node.last_error, !node.seen_at]),
    build: (node) => (node.rest ? element("li", {}, element("a", { href: addressOf({ view: "nodes" }) }, node.rest)) : nodeItem(node, now)),
  });
}

function countWords(left, away) {
  const words = [away ? `${away} more unreachable` : "", left > away ? `${left - away} more` : ""];
  return words.filter(Boolean).join(", ");
}

function nodeItem(node, now) {
  const { word, kind, picture, detail } = reach(node, now);
  return element(
    "li",
    { class: kind, title: detail },
    icon(picture),
    element("b", {}, node.name),
    " ",
    element("span", { class: "reach" }, word),
  );
}

function reach(node, now) {
  const where = node.url ?? "fetches its work itself";
  if (node.unreachable_since) {
    const since = momentOf(Date.parse(node.unreachable_since), now);
    const why = node.last_error ? `: ${node.last_error}` : "";
    return { word: `unreachable since ${since}${why}`, kind: "failed", picture: "cross", detail: where };
  }
  if (!node.seen_at) return { word: "not seen yet", kind: "gone", picture: "clock", detail: where };
  const seen = distance(Date.parse(node.seen_at), now);
  return { word: "reachable", kind: "done", picture: "check", detail: `${where}, seen ${seen}` };
}

/** Draws what needs attention: raised alerts, the node unless its status is not known, and tasks that were refused. */
export function drawHealth(status, refused, alerts, now) {
  const things = [
    ...alertLine(alerts, now),
    ...(status?.attention ?? []).map(({ what, command }) => [readable(what, now), " ", element("code", {}, command)]),
    ...refused.map((task) => [element("a", { href: addressOf({ task: task.id }) }, task.headline), ` refused: ${readable(task.reason ?? "", now)}`]),
  ];
  const well = status && !things.length ? [element("li", { class: "done" }, icon("check"), "Nothing needs attention.")] : [];
  const items = things.slice(0, ATTENTION_MOST).map((content) => element("li", { class: "missed" }, icon("alert"), content));
  const left = things.length - ATTENTION_MOST;
  if (left > 0) items.at(-1)?.append(" ", element("a", { href: addressOf({ view: "nodes" }) }, `and ${left} more`));
  refill(byId("health"), [...well, ...items]);
}

// One line for all alerts, as there may be many; those that somebody looks after do not count.
function alertLine({ items, next }, now) {
  const open = items.filter(({ acknowledged_at: seen }) => !seen);
  if (!open.length) return [];
  const [{ headline, sentence }] = open;
  const count = open.length + (next ? 1 : 0);
  const words = count === 1 ? "1 alert is raised" : `${open.length}${next ? " or more" : ""} alerts are raised`;
  return [[element("a", { href: addressOf({ view: "alerts" }) }, words), `: ${headline}: ${readable(sentence, now)}`]];
}

const LIVE_WORDS = { connecting: "connecting", live: "live", down: "reconnecting" };

export function drawLive(state) {
  const badge = byId("live");
  badge.dataset.state = state;
  setText(byId("live-word"), LIVE_WORDS[state]);
}

/** Shows one sentence across the page, or none. */
export function drawNotice(sentence) {
  const notice = byId("notice");
  notice.hidden = !sentence;
  setText(notice, sentence ?? "");
}

/** Returns the notice while the stream is down. It is constant, because each change would be read out. */
export function downSentence({ since, why }, now) {
  const cause = why ?? `No connection to the node since ${momentOf(since, now)}`;
  return `${cause}. The data shown may be out of date; the page reconnects automatically.`;
}
