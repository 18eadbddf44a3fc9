// The view of the tasks: what they measure, when, and what became of their runs.

import { coalesced } from "./coalesce.js";
import { element } from "./dom.js";
import { drawTasks, TASK_PATHS } from "./tasks.js";
import { setCall } from "./view-frame.js";
import { isOver } from "./words.js";

/** Shows the tasks. Events tell the numbers of their runs; when they run next is asked for now and then. */
export function open(box, { api, model, actionsOf, reporting }) {
  const list = element("div", { id: "tasks" }, element("p", { class: "empty" }, "Loading …"));
  box.replaceChildren(list);
  setCall(TASK_PATHS[0]);
  const draw = () => drawTasks(list, model, actionsOf);
  const drawSoon = coalesced(async () => draw(), 250);
  const refreshActive = coalesced(() => reporting(fetchActive), 30_000);
  async function fetchActive() {
    if (!list.isConnected) return;
    const { items } = await api.get(TASK_PATHS[0]);
    for (const task of items) model.tasks.set(task.id, task);
    draw();
  }
  return {
    events: ["task"],
    gap: 3_000,
    redraw: draw,
    async fetch() {
      const [active, newest] = await Promise.all(TASK_PATHS.map((path) => api.get(path)));
      model.tasks = new Map([...newest.items, ...active.items].map((task) => [task.id, task]));
      draw();
    },
    onEvent(type, { state }) {
      if (type !== "run") return;
      drawSoon();
      if (isOver(state)) refreshActive();
    },
  };
}
