// What the page shows is in the address: "#task=…" filters, "#run=…" and "#list=…" open the drawer.

const FIELDS = ["task", "run", "list", "lane", "from", "to"];

/** The place in the address, as an object with the fields that are there. */
export function place() {
  const given = new URLSearchParams(location.hash.slice(1));
  return Object.fromEntries(FIELDS.filter((name) => given.has(name)).map((name) => [name, given.get(name)]));
}

/** The address of another place; the filter by task stays unless it is changed. */
export function hrefOf(next) {
  const fields = { task: place().task, ...next };
  const given = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null);
  return `#${new URLSearchParams(given)}`;
}

export function go(next) {
  location.hash = hrefOf(next);
}

/** Closes what is open without a jump to the top of the page and without a new step to go back. */
export function leave() {
  history.replaceState(null, "", hrefOf({}));
}
