// The view of the campaigns: promised against delivered.

import { CAMPAIGNS_PATH, drawCampaigns } from "./campaigns.js";
import { element } from "./dom.js";
import { setCall } from "./view-frame.js";

export function open(box, { api, model }) {
  const list = element("div", { id: "campaigns" }, element("p", { class: "empty" }, "Loading …"));
  const hint = "Shares of all seat-seconds on the nodes that tasks of this node use; a mark shows the share promised by weight.";
  box.replaceChildren(list, element("p", { class: "hint" }, hint));
  setCall(CAMPAIGNS_PATH);
  return {
    events: ["campaign", "ended"],
    gap: 30_000,
    async fetch() {
      drawCampaigns(list, (await api.get(CAMPAIGNS_PATH)).items, model.now());
    },
  };
}
