// The address has what the page shows: "#view=…" names the view, "#task=…" filters the overview, and
// "#run=…" and "#list=…" open the drawer above any view. All other fields belong to the view.

const DRAWER = ["run", "list", "lane", "from", "to"];

/** Returns the fields in the address as an object. */
export function place() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/** Returns the name of the view that the address names; "#mesh=NAME" alone is the view of a mesh. */
export function viewOf({ view, mesh } = place()) {
  return view ?? (mesh ? "mesh" : "overview");
}

/** Returns an address with these fields only; those that are null are left out. */
export function addressOf(fields) {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return `#${new URLSearchParams(given)}`;
}

/** Returns the address of the same view with other fields, and with the drawer only if they name it. */
export function hrefOf(next) {
  const kept = Object.entries(place()).filter(([name]) => !DRAWER.includes(name));
  return addressOf({ ...Object.fromEntries(kept), ...next });
}

export function go(next) {
  location.hash = hrefOf(next);
}

/** Closes the drawer without scrolling to the top and without a new entry in the history. */
export function leave() {
  history.replaceState(null, "", hrefOf({}));
}

/** Changes fields of the view without a new entry in the history, and lets the page follow. */
export function adjust(next) {
  history.replaceState(null, "", hrefOf(next));
  dispatchEvent(new HashChangeEvent("hashchange"));
}
