// The view of the limits: what other nodes may have of this host, and what this node has left on others.

import { element, icon } from "./dom.js";
import { drawTable } from "./lists.js";
import { timeElement } from "./parts.js";
import { setCall } from "./view-frame.js";
import { readable } from "./words.js";

const ASKED_MOST = 30;
const COLUMNS = ["Node", "Rule", "At most", "Used and left"];

export function open(box, { api, model }) {
  const own = element("div", {});
  const list = element("div", { id: "limits" }, element("p", { class: "empty" }, "Asking the other nodes …"));
  const given = element("div", { id: "given" });
  box.replaceChildren(section("On other hosts, for this node", list), section("On this host, for other nodes", given), own);
  setCall("/v1/limits");
  async function fetch() {
    const now = model.now();
    const [limits, nodes] = await Promise.all([api.get("/v1/limits"), api.get("/v1/nodes")]);
    own.replaceChildren(...ownLimits(limits, now));
    if (!limits.text) given.replaceChildren();
    else {
      drawTable(given, limits.given.flatMap(rowsOf), {
        caption: "Limits of this host for other nodes",
        columns: COLUMNS,
        empty: () => ["No other node is known here."],
        row: (each) => limitRow(each, now),
        sign: (each) => JSON.stringify(each),
      });
    }
    const others = nodes.items.filter(({ is_self: self, unreachable_since: away }) => !self && !away).slice(0, ASKED_MOST);
    const granted = await Promise.all(others.map(({ name }) => api.get(`/v1/nodes/${name}/limits`).catch(({ message, problem }) => ({ node: name, rules: [], fault: problem?.detail ?? message }))));
    drawTable(list, granted.flatMap(rowsOf), {
      caption: "Limits of other hosts for this node",
      columns: COLUMNS,
      empty: () => ["No other node answers."],
      row: (each) => limitRow(each, now),
      sign: (each) => JSON.stringify(each),
    });
  }
  return { events: ["limit", "limits", "node"], gap: 30_000, fetch };
}

function section(heading, content) {
  return element("section", { class: "found" }, element("h3", {}, heading), content);
}

function rowsOf({ node, rules, caps = [], fault }) {
  if (!rules.length) return [{ id: node, node, rule: null, what: fault ?? "no rule is for this node", most: caps.join("; "), left: [] }];
  return rules.map((rule) => ({ id: `${node} ${rule.rule}`, node, ...rule }));
}

function limitRow({ node, rule, what, most, left }, now) {
  const quotas = left.map(({ quota, used, left: rest, free_at: free }) => element("p", {}, `${used} used, ${rest} left of ${quota}; anew `, timeElement(Date.parse(free), now)));
  const cells = [
    ["what", element("b", { class: "test" }, node)],
    ["rule", rule && element("b", {}, rule), element("p", { class: "reason" }, what)],
    ["most", most],
    ["left", quotas.length ? quotas : "nothing counted"],
  ];
  return element("tr", { role: "row" }, cells.map(([kind, ...content]) => element("td", { class: kind, role: "cell" }, content.flat().filter(Boolean))));
}

function ownLimits({ file, loaded_at: loaded, fault, refused_tasks: refused, text }, now) {
  const source = element("p", { class: "hint" }, file ?? "The default", ", in force since ", timeElement(Date.parse(loaded), now), refused ? `; ${refused} open tasks of other nodes get no time because of them` : "");
  const wrong = fault ? element("p", { class: "verdict failed" }, icon("alert"), element("span", {}, readable(fault, now))) : null;
  return [source, wrong, element("pre", { tabindex: "0", "aria-label": "The limits of this host" }, text || "No limits: every node that is known may ask for anything.")].filter((each) => each !== null);
}
