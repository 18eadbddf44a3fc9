// The destinations of results: their backlog, last error, and a button to retry.

import { element } from "./dom.js";
import { drawTable } from "./lists.js";
import { timeElement } from "./parts.js";

export const ARCHIVES_PATH = "/v1/archivings/backlog";
export const RETRY_PATH = "/v1/archivings/retry";

const COLUMNS = ["Where", "Waiting", "Parked", "Oldest", "Last error", ""];

/** Draws the destinations. */
export function drawArchives(box, items, now, retry) {
  drawTable(box, items.map((item) => ({ ...item, id: item.destination })), {
    caption: "Archives",
    columns: COLUMNS,
    empty: () => ["No results are delivered elsewhere: ", element("code", {}, "parley archive add NAME")],
    row: (item) => archiveRow(item, now, retry),
    sign: (item) => JSON.stringify(item),
  });
}

function archiveRow(item, now, retry) {
  const backlog = item.waiting + item.parked;
  const cells = [
    ["what", where(item)],
    ["count", String(item.waiting)],
    ["count", String(item.parked)],
    ["when", item.oldest_at && backlog ? timeElement(Date.parse(item.oldest_at), now) : ""],
    ["reason", backlog ? item.last_error ?? "" : ""],
    ["action", backlog ? retryButton(item, retry) : ""],
  ];
  return element(
    "tr",
    { class: item.parked ? "archive parked" : "archive", role: "row" },
    cells.map(([kind, content]) => element("td", { class: kind, role: "cell" }, content)),
  );
}

function where({ archiver, label, archives, tasks }) {
  const counted = tasks ? [`${tasks} task${tasks === 1 ? "" : "s"}`] : [];
  const title = [...archives, ...counted].join(", ");
  return element("span", { title }, element("b", { class: "test" }, archiver), ` ${label}`);
}

function retryButton({ destination, label }, retry) {
  const attributes = { type: "button", class: "plain", "aria-label": `Retry ${label}` };
  const button = element("button", attributes, "Retry");
  button.addEventListener("click", () => {
    button.disabled = true;
    retry(destination);
  });
  return button;
}
