// The campaigns: their promised and used shares, and what they wait for.

import { element } from "./dom.js";
import { drawTable } from "./lists.js";
import { readable, weightWords } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const COLUMNS = ["Campaign", "Promised", "Had in 24 h, and booked", "Waits", "Tasks"];
const ENDED = new Set(["finished", "cancelled", "refused", "unplaced"]);

export const CAMPAIGNS_PATH = "/v1/campaigns?limit=200";

/** Draws the campaigns, each below its parent. */
export function drawCampaigns(box, campaigns, now) {
  drawTable(box, inFamilies(campaigns), {
    caption: "Campaigns",
    columns: COLUMNS,
    empty: () => ["No campaign yet: ", element("code", {}, "parley campaign add NAME")],
    row: (campaign) => campaignRow(campaign, now),
    sign: (campaign) => JSON.stringify(campaign),
  });
}

/** Sorts parents before their children, and adds the depth. */
function inFamilies(campaigns, parent = null, depth = 0) {
  return campaigns
    .filter((campaign) => campaign.parent === parent)
    .sort((one, other) => rank(other) - rank(one) || (one.name < other.name ? -1 : 1))
    .flatMap((campaign) => [
      { ...campaign, id: campaign.name, depth },
      ...inFamilies(campaigns, campaign.name, depth + 1),
    ]);
}

const rank = ({ level, used }) => (level === "urgent" ? 2 : used.promised ?? 0);

function campaignRow(campaign, now) {
  const cells = [
    ["what", name(campaign)],
    ["promised", promise(campaign)],
    ["portions", shares(campaign.used)],
    ["waits", ...waits(campaign.waiting, now)],
    ["open", tasks(campaign.tasks)],
  ];
  return element(
    "tr",
    { class: `campaign depth-${Math.min(campaign.depth, 4)}`, role: "row" },
    cells.map(([kind, ...content]) => element("td", { class: kind, role: "cell" }, content)),
  );
}

function name(campaign) {
  const title = `${weightWords(campaign)}, level ${campaign.level}, revision ${campaign.revision}`;
  const closed = campaign.state === "closed" ? element("small", { class: "closed" }, " closed") : null;
  return element("span", { title }, element("b", { class: "test" }, campaign.name), closed);
}

function promise({ level, target, used, warnings }) {
  if (level === "urgent") return "served first";
  if (level === 0) return "suspended";
  if (!target) return percent(used.promised);
  const seats = target.seats === null ? percent(target.share) : `${target.seats} seats`;
  const bounds = [
    target.borrow === null ? "" : `, borrows ${target.borrow}`,
    target.lend === null ? "" : `, lends ${percent(target.lend)} of it`,
  ].join("");
  return `${percent(used.promised)}, ${seats}${warnings.length ? "" : " for sure"}${bounds}`;
}

// Two bars on one scale, with a mark at the promise; the figures beside them have the same values.
function shares(used) {
  const lines = [
    ["had", used.delivered, used.delivered_seat_seconds],
    ["booked", used.booked, used.booked_seat_seconds],
  ];
  return element(
    "div",
    { class: "shares" },
    lines.flatMap(([word, share, seatSeconds]) => [
      bar(word, share, used.promised),
      element(
        "span",
        { class: "figure", title: `${Math.round(seatSeconds)} seat-seconds` },
        share === null ? "no usage yet" : `${percent(share)} ${word}`,
      ),
    ]),
  );
}

function bar(kind, share, promised) {
  const svg = shape("svg", { class: `bar ${kind}`, viewBox: "0 0 100 8", preserveAspectRatio: "none" });
  svg.setAttribute("aria-hidden", "true");
  svg.append(shape("rect", { class: "track", width: 100, height: 8 }));
  svg.append(shape("rect", { class: "part", width: 100 * (share ?? 0), height: 8 }));
  if (promised) svg.append(shape("rect", { class: "mark", x: Math.min(99, 100 * promised - 0.5), width: 1, height: 8 }));
  return svg;
}

function shape(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  return made;
}

function waits({ runs, seats, tasks: waiting, reason }, now) {
  const lacking = [[runs, "run"], [seats, "seat"]].filter(([count]) => count);
  if (!lacking.length) return [element("span", { class: "reason" }, "nothing waits")];
  const count = `${lacking.map((each) => counted(...each)).join(", ")} of ${counted(waiting, "task")}`;
  return [count, element("p", { class: "reason" }, readable(reason ?? "", now))];
}

const counted = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

function tasks(counts) {
  const open = Object.entries(counts).filter(([state]) => !ENDED.has(state));
  return open.map(([state, count]) => counted(count, `${state} task`)).join(", ") || "no task";
}

function percent(part) {
  return part === null ? "" : `${Number((100 * part).toFixed(1))} %`;
}
