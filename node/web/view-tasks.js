// The view of the tasks: what they measure, when, and what became of their runs; searched, sorted, page by page.

import { coalesced } from "./coalesce.js";
import { element } from "./dom.js";
import { adjust, place } from "./place.js";
import { askedOf, drawPages, drawTasks, OUTCOMES, orderOf, STATES, tasksPath } from "./tasks.js";
import { setCall } from "./view-frame.js";
import { isOver } from "./words.js";

/** Shows the tasks. Events tell the numbers of their runs; all else of the page is asked for now and then. */
export function open(box, { api, model, actionsOf, reporting, tools }) {
  const list = element("div", { id: "tasks" }, element("p", { class: "empty" }, "Loading …"));
  const pages = element("nav", { class: "pages", "aria-label": "Pages of the list" });
  box.replaceChildren(list, pages);
  /** @type {{ ids: string[], next: string | null } | null} what the node has answered */
  let answer = null;
  let asked = askedOf(place());
  // The cursor of each page that was read in this order.
  /** @type {string[]} */
  let cursors = [];
  let order = "";

  const field = element("input", { type: "search", "aria-label": "Only tasks with these words", placeholder: "test, host, mesh, user …", autocomplete: "off", spellcheck: "false" });
  const choice = (label, options) => element("select", { "aria-label": label }, Object.entries(options).map(([value, words]) => element("option", { value }, words)));
  const states = choice("Only tasks", STATES);
  const outcomes = choice("Only tasks whose newest slot is", OUTCOMES);
  const searchSoon = coalesced(async () => {
    const q = field.value.trim();
    if (field.isConnected && q !== asked.q) adjust({ q, after: null, page: null });
  }, 300);
  field.addEventListener("input", () => searchSoon());
  states.addEventListener("change", () => adjust({ state: states.value, after: null, page: null }));
  outcomes.addEventListener("change", () => adjust({ outcome: outcomes.value, after: null, page: null }));
  tools.replaceChildren(field, states, outcomes);

  function draw() {
    if (!answer) return;
    const known = answer.ids.flatMap((id) => model.tasks.get(id) ?? []);
    drawTasks(list, known, { now: model.now(), actionsOf, asked, searched: Boolean(asked.q || asked.state || asked.outcome || asked.after) });
    drawPages(pages, { page: asked.page, count: known.length, next: answer.next, before: cursors[asked.page - 1] });
  }
  async function fetch() {
    asked = askedOf(place());
    if (document.activeElement !== field) field.value = asked.q;
    states.value = asked.state;
    outcomes.value = asked.outcome;
    const path = tasksPath(asked);
    const found = await api.get(path);
    if (!list.isConnected || tasksPath(askedOf(place())) !== path) return;
    setCall(path);
    const now = orderOf(asked);
    if (now !== order) cursors = [];
    order = now;
    cursors[asked.page] = asked.after;
    model.tasks = new Map(found.items.map((task) => [task.id, task]));
    answer = { ids: found.items.map(({ id }) => id), next: found.next };
    draw();
  }
  const drawSoon = coalesced(async () => draw(), 250);
  const refreshSoon = coalesced(() => reporting(fetch), 30_000);
  return {
    events: ["task"],
    gap: 3_000,
    redraw: draw,
    fetch,
    onEvent(type, { state }) {
      if (type !== "run") return;
      drawSoon();
      if (isOver(state)) refreshSoon();
    },
  };
}
