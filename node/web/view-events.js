// The view of the events: those that the node has kept, and each new one as it happens.

import { coalesced } from "./coalesce.js";
import { element, reconcile } from "./dom.js";
import { headlineOf, stateBadge, timeElement } from "./parts.js";
import { addressOf, adjust, hrefOf, place } from "./place.js";
import { Stream } from "./stream.js";
import { setCall } from "./view-frame.js";
import { spell } from "./words.js";

// Kinds in the order of the choice. Those that the reader's role may not see never come.
const KINDS = {
  run: "runs",
  task: "tasks",
  interval: "intervals",
  exchange: "bookings",
  alert: "alerts",
  node: "nodes",
  reservation: "reservations",
  campaign: "campaigns",
  pool: "pools",
  misses: "expected misses",
  archive: "archives",
  limit: "limits reached",
  limits: "limits changed",
  token: "tokens",
  certificate: "certificates",
  audit: "audit",
};
const KEPT = 2_000;
const SHOWN = 150;

/** Shows the newest events first, those that the filters in the address let through. */
export function open(box, { api, model, tools }) {
  const events = [];
  let lost = false;
  let down = null;
  const list = element("ol", { class: "events" });
  const note = element("p", { class: "hint", role: "status" });
  box.replaceChildren(list, note);
  tools.replaceChildren(...filters(() => draw()));
  setCall("/v1/events");
  const drawSoon = coalesced(async () => draw(), 250);
  const stream = new Stream(
    api,
    {
      onOpen: () => (down = null),
      onEvent(type, data, id) {
        if (type === "gap") lost = true;
        else events.unshift({ type, id, ...about(type, data), at: Date.parse(data.at) });
        if (events.length > KEPT) events.length = KEPT;
        drawSoon();
      },
      onDown(why) {
        down = why ?? "No connection to the node";
        drawSoon();
      },
    },
    { path: "/v1/events", after: "0" },
  );
  stream.start();

  function draw() {
    if (!box.isConnected) return;
    const { types = "", q = "" } = place();
    const wanted = types ? new Set(types.split(",")) : null;
    const words = q.toLowerCase().split(/\s+/u).filter(Boolean);
    const found = events.filter((event) => (!wanted || wanted.has(event.type)) && words.every((word) => event.text.includes(word)));
    reconcile(list, found.slice(0, SHOWN), { key: ({ id }) => id, signature: ({ id }) => `${id} ${hrefOf({})}`, build: (event) => row(event, model.now()) });
    const count = found.length > SHOWN ? `the newest ${SHOWN} of ${found.length} events` : `${found.length} events`;
    note.textContent = down ? `${down}; it is tried again.` : `${count}; the node keeps ${KEPT}${lost ? ", older ones are gone" : ""}.`;
  }
  return { fetch: async () => draw(), close: () => stream.stop() };
}

/** Returns what an event says. */
function about(type, { id, task, state, headline, number, campaign, verb, outcome, by, begins_at: begins, ends_at: ends }) {
  const deed = verb && `${verb.replaceAll("_", " ")}:`;
  const change = [deed, number !== undefined && `interval ${number}`, campaign, outcome, by && `by ${by}`].filter(Boolean).join(" ");
  const period = begins && ends ? `for ${spell(Date.parse(ends) - Date.parse(begins))}` : "";
  const text = [type, KINDS[type], id, task, state, headline, change].join(" ").toLowerCase();
  return { subject: id, task, state, headline, change: [change, period].filter(Boolean).join(" "), text };
}

function row({ type, subject, task, state, headline, change, at }, now) {
  const words = headline ? headlineOf({ headline }) : [element("span", { class: "whom" }, named(type, subject))];
  const href = { run: () => hrefOf({ run: subject }), task: () => addressOf({ task: subject }), interval: () => hrefOf({ run: subject }), node: () => addressOf({ view: "nodes" }), archive: () => addressOf({ view: "archives" }), campaign: () => addressOf({ view: "campaigns" }), alert: () => addressOf({ view: "alerts" }) }[type]?.() ?? (task ? addressOf({ task }) : null);
  return element(
    "li",
    {},
    element("span", { class: "kind" }, type),
    state ? stateBadge(state) : element("span", {}, change),
    href ? element("a", { href }, words) : element("span", {}, words),
    state && change ? element("span", { class: "reason" }, change) : null,
    element("span", { class: "reason when" }, timeElement(at, now)),
  );
}

// Names stay whole, ids are told by their beginning.
const named = (type, subject) => (/^[0-9a-f]{8}-/u.test(subject) ? `${type} ${subject.slice(0, 8)}` : subject);

function filters(onChange) {
  const { types = "", q = "" } = place();
  const change = (fields) => {
    adjust(fields);
    onChange();
  };
  const options = [["", "all kinds"], ...Object.entries(KINDS)].map(([value, words]) => element("option", { value, selected: value === types }, words));
  return [
    element("label", {}, element("span", { class: "unseen" }, "Kind"), element("select", { change: ({ target }) => change({ types: target.value }) }, options)),
    element("label", {}, element("span", { class: "unseen" }, "Words"), element("input", { type: "search", value: q, placeholder: "words in it", input: ({ target }) => change({ q: target.value }) })),
  ];
}
