// The view of the archives: what waits to be delivered, and why.

import { ARCHIVES_PATH, drawArchives, RETRY_PATH } from "./archives.js";
import { element } from "./dom.js";
import { setCall } from "./view-frame.js";

export function open(box, { api, model, reporting }) {
  const list = element("div", { id: "archives" }, element("p", { class: "empty" }, "Loading …"));
  box.replaceChildren(list);
  setCall(ARCHIVES_PATH);
  async function fetch() {
    drawArchives(list, (await api.get(ARCHIVES_PATH)).items, model.now(), retry);
  }
  function retry(destination) {
    return reporting(async () => {
      await api.call("POST", RETRY_PATH, { destination });
      await fetch();
    });
  }
  return { events: ["archive"], gap: 10_000, fetch };
}
