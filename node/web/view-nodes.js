// The view of the nodes: what each is, has, and does, and a check of the way to it.

import { element, icon } from "./dom.js";
import { may } from "./actions.js";
import { bytes } from "./bytes.js";
import { drawTable } from "./lists.js";
import { ticking, timeElement } from "./parts.js";
import { setCall } from "./view-frame.js";
import { momentOf, parseDuration, readable, spell } from "./words.js";

const COLUMNS = ["Node", "Reach", "Clock", "Load and backlog", "Booked", "Tools", "Last check", ""];
const AGAIN = 30_000;
const CHECK_PATH = "/v1/checks";

export function open(box, { api, model, actions, caller, reporting }) {
  const status = element("div", { class: "status" });
  const list = element("div", { id: "node-list" });
  const report = element("div", { class: "report", role: "status" });
  let nodes = [];
  let clock = null;
  let fetched = model.now();
  /** @type {any} the status of this node, or null for those who may not see it */
  let own = null;
  box.replaceChildren(status, list, report);
  list.append(element("p", { class: "empty" }, "Loading …"));
  setCall("/v1/nodes");

  async function fetch() {
    const [all, now, how] = await Promise.all([api.get("/v1/nodes"), api.get("/v1/clock"), api.get("/v1/status").catch(() => null)]);
    [nodes, clock, own] = [all.items, now, how];
    fetched = model.now();
    drawStatus(status, how, fetched);
    draw();
  }
  function draw() {
    if (!nodes.length) return;
    const now = model.now();
    const rows = nodes.map((node) => ({ ...node, id: node.identity, host: node.is_self ? hostOf(clock, own) : node.host, backlog: node.is_self ? (own?.backlog.messages ?? null) : node.backlog }));
    rows.sort((one, other) => rank(other) - rank(one) || (one.name < other.name ? -1 : 1));
    drawTable(list, rows, {
      caption: "Nodes",
      columns: COLUMNS,
      empty: () => ["No node."],
      row: (node) => nodeRow(node, now, may(caller(), "operate") ? buttonsOf(node) : []),
      sign: ({ heard_at: _, ...node }) => JSON.stringify([node, may(caller(), "operate")]),
    });
  }
  function buttonsOf(node) {
    const button = (words, label, click) => element("button", { type: "button", "aria-label": `${label} ${node.name}`, click }, words);
    const checking = button("check", "check", () => check(node));
    if (!node.is_self) return [checking, drainedThere(node)];
    const drained = Boolean(node.attributes.drained);
    const title = drained ? `End the drain of ${node.name}` : `Drain ${node.name}`;
    return [checking, button(drained ? "end the drain …" : "drain …", drained ? "end the drain of" : "drain", () => actions.open(drained ? "undrain" : "drain", { title }))];
  }
  async function check(node) {
    report.replaceChildren(element("p", { class: "empty" }, `Checking ${node.is_self ? node.name : `the way to ${node.name} and back`} …`));
    await reporting(async () => {
      const answer = await api.call("POST", CHECK_PATH, node.is_self ? {} : { to: node.name });
      report.replaceChildren(...answer.views.map((view) => viewOf(view, model.now())));
      nodes = (await api.get("/v1/nodes")).items;
      draw();
    });
  }
  // No event tells of load and backlog.
  function tick(now) {
    if (now - fetched < AGAIN) return;
    fetched = now;
    reporting(fetch);
  }
  return { events: ["node"], gap: 10_000, fetch, redraw: draw, tick };
}

// A node gives its time to nobody else: it is drained by its own owner, on its own page.
function drainedThere({ name, url, kind }) {
  if (kind && kind !== "parley") return null;
  if (!url) return element("p", { class: "reason" }, "drained on its own host: ", element("code", {}, "parley node drain"));
  return element("a", { href: `${url}/#view=nodes`, rel: "noreferrer", title: `Only the page of ${name} drains it, for its own users`, "aria-label": `drain on its page: ${name}` }, "drain on its page");
}

const rank = (node) => 2 * Number(Boolean(node.unreachable_since)) + Number(Boolean(node.is_self));

const UNREAD = "cannot be read";

function drawStatus(box, how, now) {
  if (how === null) return void box.replaceChildren();
  const planning = how.planning ?? { plan_age: null, due_tasks: 0 };
  const age = planning.plan_age === null ? "no task planned yet" : `last plan ${spell(parseDuration(planning.plan_age) ?? 0)} ago`;
  const facts = [
    ["Up since", momentOf(Date.parse(how.started_at), now)],
    ["Database", how.database.answer_ms === null ? UNREAD : `${bytes(how.database.size_bytes)}, answers in ${how.database.answer_ms.toFixed(1)} ms`],
    ["Planning", how.planning === null || how.leads === null ? UNREAD : `${how.leads.filter(({ state }) => state === "planning").length} of ${how.leads.length} leads plan, ${age}${planning.due_tasks ? `, ${planning.due_tasks} tasks due` : ""}`],
    ["Backlog", how.backlog === null ? UNREAD : `${how.backlog.messages} messages, ${how.backlog.results_waiting} results${how.backlog.results_parked ? `, ${how.backlog.results_parked} parked` : ""}`],
    ["Load", `${how.load.one_minute.toFixed(2)} on ${how.load.processors} processors`],
    ["Disk", `${bytes(how.disk.free_bytes)} of ${bytes(how.disk.total_bytes)} free`],
    ["Backup", how.backup.latest_at ? momentOf(Date.parse(how.backup.latest_at), now) : how.backup.wanted ? "none yet" : "none wanted"],
  ];
  const list = element("dl", { class: "tiles" }, facts.map(([term, value]) => element("div", {}, element("dt", {}, term), element("dd", {}, value))));
  const attention = how.attention.map(({ what, command }) => element("li", { class: "missed" }, icon("alert"), readable(what, now), " ", element("code", {}, command)));
  box.replaceChildren(element("ul", { class: "attention" }, attention), list);
}

function nodeRow(node, now, buttons) {
  const cells = [
    ["what", element("b", { class: "test" }, node.name), node.is_self ? " (this node)" : null, element("p", { class: "reason" }, [versionOf(node), node.url ?? "fetches its work"].filter(Boolean).join(" · ")), keyOf(node.identity)],
    ["reach", ...reach(node, now)],
    ["timing", ...clockWords(node, now)],
    ["load", ...loadWords(node)],
    ["booked", ...booked(node, now)],
    ["has", toolsOf(node.attributes)],
    ["check", ...checkWords(node.checked, now)],
    ["more", ...buttons],
  ];
  return element("tr", { class: node.unreachable_since ? "failed" : "node", role: "row" }, cells.map(([kind, ...content]) => element("td", { class: kind, role: "cell" }, content.flat().filter(Boolean))));
}

function versionOf({ version, attributes }) {
  const known = version || attributes.version;
  return known && `Parley ${known}`;
}

function keyOf(identity) {
  const short = `${identity.slice(8, 16)}…`;
  return element("p", { class: "reason", title: identity }, "key ", element("code", {}, short));
}

function reach(node, now) {
  if (node.is_self) return [element("span", { class: "state done" }, icon("check"), "answers")];
  const words = node.unreachable_since
    ? [element("span", { class: "state failed" }, icon("cross"), "unreachable"), " since ", timeElement(Date.parse(node.unreachable_since), now)]
    : node.seen_at
      ? [element("span", { class: "state done" }, icon("check"), "reachable"), " seen ", ticking("age", Date.parse(node.seen_at), now)]
      : [element("span", { class: "state gone" }, icon("clock"), "not seen yet")];
  const stranger = node.knows_this === false ? element("p", { class: "reason" }, "It does not know this node.") : null;
  const error = node.last_error && node.unreachable_since ? element("p", { class: "reason" }, readable(node.last_error, now)) : null;
  return [...words, stranger, error];
}

/** The state of this host, in the form in which others tell theirs. */
function hostOf(clock, own) {
  return { ...clock, at: null, load: own?.load.one_minute ?? null, processors: own?.load.processors ?? null, needs_attention: own?.attention.length ?? 0 };
}

function clockWords({ host, is_self: isSelf, unreachable_since: away }, now) {
  if (!host) return [element("span", { class: "reason" }, away ? "not asked" : "not told")];
  const bound = host.error_bound_ms === null ? "" : ` ±\u00a0${milliseconds(host.error_bound_ms)}`;
  const state = host.synchronised === false ? element("span", { class: "state failed" }, icon("cross"), "not synchronised") : element("span", {}, host.synchronised ? `synchronised${bound}` : `unknown${bound}`);
  if (isSelf) return [state];
  const way = host.ahead_ms >= 0 ? "ahead" : "behind";
  const words = Math.abs(host.ahead_ms) <= host.uncertain_ms ? `as this one, ±\u00a0${milliseconds(host.uncertain_ms)}` : `${milliseconds(Math.abs(host.ahead_ms))} ${way} of this one, ±\u00a0${milliseconds(host.uncertain_ms)}`;
  return [state, element("p", { class: "reason" }, words, ", ", ticking("age", Date.parse(host.at), now))];
}

const milliseconds = (value) => (value < 1_000 ? `${Number(value.toPrecision(2))}\u00a0ms` : spell(value));

function loadWords({ host, backlog }) {
  const load = host?.processors ? [`${host.load.toFixed(2)} on ${host.processors} processor${host.processors === 1 ? "" : "s"}`] : [element("span", { class: "reason" }, "load not told")];
  const waits = backlog === null ? null : element("p", { class: "reason" }, backlog ? `${backlog} message${backlog === 1 ? " waits" : "s wait"} to be sent` : "no message waits");
  const attention = host?.needs_attention ? element("p", { class: "caution" }, icon("alert"), `${host.needs_attention} thing${host.needs_attention === 1 ? " needs" : "s need"} attention`) : null;
  return [...load, waits, attention];
}

function checkWords(checked, now) {
  if (!checked) return [element("span", { class: "reason" }, "not checked since this node started")];
  const { kind, words } = worst(checked);
  return [element("span", { class: `state ${kind}` }, icon(kind === "done" ? "check" : "alert"), words), " ", ticking("age", Date.parse(checked.at), now)];
}

function booked(node, now) {
  const busy = node.busy_until && Date.parse(node.busy_until) > now ? `busy until ${momentOf(Date.parse(node.busy_until), now)}` : null;
  const drained = node.attributes.drained ? element("p", { class: "reason" }, `drained: ${node.attributes.drained}`) : null;
  const lease = node.lease_until ? element("p", { class: "reason" }, `its tasks here until ${momentOf(Date.parse(node.lease_until), now)}`) : null;
  return [`${busy ?? (node.is_self ? "" : "free now")}${busy || !node.is_self ? ", " : ""}${node.lanes} lanes`, drained, lease];
}

function toolsOf(attributes) {
  const tools = Object.entries(attributes).filter(([name, value]) => name.startsWith("tool:") && value).map(([name]) => name.slice(5));
  return tools.sort().join(", ") || element("span", { class: "reason" }, "not told");
}

function worst({ faults, warnings, passed }) {
  if (faults) return { kind: "failed", words: `${faults} fault${faults === 1 ? "" : "s"}` };
  if (warnings) return { kind: "missed", words: `${warnings} warning${warnings === 1 ? "" : "s"}` };
  return { kind: "done", words: `${passed} check${passed === 1 ? "" : "s"} passed` };
}

const PICTURES = { ok: ["done", "check"], warning: ["missed", "alert"], fault: ["failed", "cross"], skipped: ["gone", "dash"] };

function viewOf({ node, towards, checks }, now) {
  const items = checks.map(({ subject, state, what, cause, command, where }) => {
    const [kind, picture] = PICTURES[state] ?? ["gone", "dash"];
    return element(
      "li",
      {},
      element("span", { class: `state ${kind}` }, icon(picture), subject),
      " ",
      readable(what, now),
      cause ? element("p", { class: "reason" }, readable(cause, now)) : null,
      command ? element("p", { class: "reason" }, where ? `on ${where}: ` : "", element("code", {}, command)) : null,
    );
  });
  return element("section", { class: "found" }, element("h3", {}, towards ? `${node} to ${towards}` : node), element("ul", { class: "checks" }, items));
}
