// The view of the alerts: those that are raised first, each to be acknowledged, and silenced until an instant.

import { may } from "./actions.js";
import { element, refill } from "./dom.js";
import { drawTable } from "./lists.js";
import { headlineOf, ticking, timeElement } from "./parts.js";
import { addressOf, adjust, hrefOf, place } from "./place.js";
import { setCall } from "./view-frame.js";
import { momentOf, readable } from "./words.js";

const SHOWN = 200;
const STATES = { raised: "raised", over: "over", "raised,over": "all" };

export function open(box, { api, model, tools, actions, caller }) {
  const list = element("div", { id: "alerts" }, element("p", { class: "empty" }, "Loading …"));
  box.replaceChildren(list);

  async function fetch() {
    const { state = "raised" } = place();
    const asked = state in STATES ? state : "raised";
    const path = `/v1/alerts?state=${asked}&limit=${SHOWN}`;
    setCall(path);
    drawTools(asked);
    const { items, next } = await api.get(path);
    if (!box.isConnected) return;
    draw(items, asked);
    box.querySelector(".hint")?.remove();
    if (next) box.append(element("p", { class: "hint" }, `These are the latest ${SHOWN}; there are more.`));
  }

  function draw(items, asked) {
    if (list.dataset.asked !== asked) list.replaceChildren();
    list.dataset.asked = asked;
    const now = model.now();
    drawTable(list, items, {
      caption: "Alerts",
      columns: ["State", "What", "Why", "Since", ""],
      empty: () => [asked === "raised" ? "No alert is raised. " : "None. ", "Thresholds of a mesh file or a task raise them: ", element("code", {}, "parley alert test")],
      row: (alert) => row(alert, now),
      sign: (alert) => JSON.stringify([alert, caller()?.role]),
    });
  }

  function row(alert, now) {
    const deeds = may(caller(), "run") ? actions.buttons(deedsOf(alert, now), { alert, title: titleOf(alert) }) : null;
    const cells = [
      ["state", element("span", { class: `state ${alert.over_at ? "done" : "failed"}` }, alert.over_at ? "over" : "raised"), ...notesOf(alert, now)],
      ["what", element("a", { href: addressOf({ task: alert.task }) }, headlineOf(alert)), element("p", { class: "reason" }, [alert.rule, alert.mesh].filter(Boolean).join(" · "))],
      ["why", element("a", { href: hrefOf({ run: alert.run }) }, readable(alert.sentence, now))],
      ["when", timeElement(Date.parse(alert.raised_at), now), element("p", { class: "reason" }, ticking("age", Date.parse(alert.raised_at), now))],
      ["act", deeds],
    ];
    return element("tr", { role: "row" }, cells.map(([kind, ...content]) => element("td", { class: kind, role: "cell" }, content)));
  }

  function drawTools(asked) {
    if (tools.dataset.alerts === asked) return;
    tools.dataset.alerts = asked;
    const buttons = Object.entries(STATES).map(([state, words]) => element("button", { type: "button", "aria-pressed": String(state === asked), click: () => adjust({ state }) }, words));
    refill(tools, [element("div", { class: "spans", role: "group", "aria-label": "Which alerts" }, buttons)]);
  }

  return {
    events: ["alert"],
    gap: 3_000,
    fetch,
    redraw: () => void fetch(),
    close: () => delete tools.dataset.alerts,
  };
}

const titleOf = ({ rule, headline }) => `${rule}: ${headline}`;

const isSilent = ({ silent_until: until }, now) => until !== null && Date.parse(until) > now;

function deedsOf(alert, now) {
  if (alert.over_at) return [];
  return [alert.acknowledged_at ? "unacknowledge" : "acknowledge", isSilent(alert, now) ? "unsilence" : "silence"];
}

function notesOf(alert, now) {
  const seen = alert.acknowledged_at && `seen by ${alert.acknowledged_by || "somebody"}`;
  const silent = isSilent(alert, now) && `silent until ${momentOf(Date.parse(alert.silent_until), now)}`;
  const over = alert.over_at && momentOf(Date.parse(alert.over_at), now);
  return [over, seen, silent].filter(Boolean).map((words) => element("p", { class: "reason" }, words));
}
