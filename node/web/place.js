// The address contains what the page shows: "#task=…" filters, "#run=…" and "#list=…" open the drawer.

const FIELDS = ["task", "mesh", "run", "list", "lane", "from", "to"];

/** Returns the fields in the address as an object. */
export function place() {
  const given = new URLSearchParams(location.hash.slice(1));
  return Object.fromEntries(FIELDS.filter((name) => given.has(name)).map((name) => [name, given.get(name)]));
}

/** Returns another address; the filter by task and the mesh stay unless they are changed. */
export function hrefOf(next) {
  const fields = { task: place().task, mesh: place().mesh, ...next };
  const given = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null);
  return `#${new URLSearchParams(given)}`;
}

export function go(next) {
  location.hash = hrefOf(next);
}

/** Closes the drawer without scrolling to the top and without a new entry in the history. */
export function leave() {
  history.replaceState(null, "", hrefOf({}));
}
