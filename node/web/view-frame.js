// What surrounds every view: its heading, and the link to the call of the API that it shows.

import { byId, setText } from "./dom.js";

/** Names the call of the API that fetches what the view shows. */
export function setCall(path) {
  byId("view-api").href = path;
}

/** Sets the heading of the view. */
export function setHeading(words) {
  setText(byId("view-heading"), words);
}
