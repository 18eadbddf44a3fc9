// The view of what the node's time is shared by: reservations, pools with their policies, campaigns.

import { may } from "./actions.js";
import { element } from "./dom.js";
import { durationWords } from "./durations.js";
import { drawTable } from "./lists.js";
import { timeElement } from "./parts.js";
import { KINDS } from "./record-form.js";
import { setCall } from "./view-frame.js";
import { readable, scheduleWords, weightWords } from "./words.js";

const LISTS = {
  reservation: {
    title: "Reservations",
    columns: ["Reservation", "Time", "Next", ""],
    none: "No time is reserved.",
    cells: (record, now) => [
      ["what", element("b", { class: "test" }, record.name), ` ${record.kind}`, record.pool ? ` of the pool ${record.pool}` : "", reason(record.description)],
      ["schedule", `${scheduleWords(record.schedule, now)}, for ${durationWords(record.duration)}`],
      ["when", record.next_starts_at ? timeElement(Date.parse(record.next_starts_at), now) : record.state],
    ],
  },
  pool: {
    title: "Pools",
    columns: ["Pool", "Policies", "Nodes", ""],
    none: "No pool yet.",
    cells: (record, now) => [
      ["what", element("b", { class: "test" }, record.name), reason(record.description), ...warnings(record, now)],
      ["schedule", record.policy.set, Object.keys(record.policy.overrides).length ? ` with ${Object.keys(record.policy.overrides).join(", ")} of its own` : "", `, ${record.choice}`],
      ["runs", record.nodes.join(", ") || "none"],
    ],
  },
  campaign: {
    title: "Campaigns",
    columns: ["Campaign", "Weight and level", "Promise", ""],
    none: "No campaign yet.",
    cells: (record, now) => [
      ["what", element("b", { class: "test" }, record.name), record.parent ? ` of ${record.parent}` : "", ...warnings(record, now)],
      ["schedule", `${weightWords(record)}, level ${record.level}`, ...record.shared.map(sharedWith)],
      ["runs", promiseWords(record.target)],
    ],
  },
};

const reason = (text) => (text ? element("p", { class: "reason" }, text) : null);

const sharedWith = ({ lead, reason: why }) => element("p", why ? { class: "reason" } : {}, `one with that of ${lead}${why ? `: ${why}` : ""}`);

const warnings = (record, now) => record.warnings.map((each) => reason(readable(each, now)));

export function open(box, { api, model, actions, caller, tools }) {
  const boxes = Object.fromEntries(Object.keys(LISTS).map((kind) => [kind, element("div", {}, element("p", { class: "empty" }, "Loading …"))]));
  box.replaceChildren(...Object.entries(LISTS).map(([kind, { title }]) => element("section", { class: "found" }, element("h3", {}, title), boxes[kind])));
  const adding = Object.entries(KINDS).map(([kind, { noun }]) => {
    return element("button", { type: "button", class: "plain", click: () => actions.open("new record", { kind, title: `New ${noun}` }) }, `New ${noun} …`);
  });
  const mayChange = () => may(caller(), "operate");
  const known = {};
  setCall(KINDS.reservation.path);

  function buttons(kind, record) {
    const { noun, path, key, removal } = KINDS[kind];
    const id = record[key];
    const title = `Remove the ${noun} ${record.name}`;
    const call = { method: "DELETE", path: `${path}/${id}` };
    return [
      element("button", { type: "button", "aria-label": `edit ${record.name}`, click: () => actions.open("edit record", { kind, key: id, title: `Edit ${record.name}` }) }, "edit …"),
      element("button", { type: "button", "aria-label": `remove ${record.name}`, click: () => actions.open("remove record", { title, removal, call }) }, "remove …"),
    ];
  }

  function draw() {
    const changing = mayChange();
    tools.replaceChildren(...(changing ? adding : []));
    const now = model.now();
    for (const [kind, { title, columns, none, cells }] of Object.entries(LISTS)) {
      if (!known[kind]) continue;
      const items = known[kind].map((record) => ({ ...record, id: record[KINDS[kind].key] }));
      drawTable(boxes[kind], items, {
        caption: title,
        columns,
        empty: () => [none],
        sign: (record) => JSON.stringify([record, changing]),
        row: (record) => {
          const made = [...cells(record, now), ["more", ...(changing ? buttons(kind, record) : [])]];
          return element("tr", { role: "row" }, made.map(([name, ...content]) => element("td", { class: name, role: "cell" }, content)));
        },
      });
    }
  }

  async function fetch() {
    const kinds = Object.entries(KINDS);
    const answers = await Promise.all(kinds.map(([, { path }]) => api.get(`${path}?limit=200`)));
    for (const [index, [kind]] of kinds.entries()) known[kind] = answers[index].items;
    draw();
  }
  return { events: ["reservation", "campaign", "pool"], gap: 3_000, redraw: draw, fetch };
}

function promiseWords(target) {
  if (!target) return "by weight";
  return target.seats === null ? `${Number((100 * target.share).toFixed(1))} % of the seats` : `${target.seats} seats`;
}
