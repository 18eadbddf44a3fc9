// Helpers that build the page: elements, icons, and lists that keep their rows.

const SVG = "http://www.w3.org/2000/svg";

/** Creates an element with attributes (functions become listeners) and children (text or nodes). */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) {
      made.setAttribute(name, String(value));
    }
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

/** Creates an element of a drawing, with attributes and a text. */
export function vector(tag, attributes, text = "") {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  if (text) made.append(text);
  return made;
}

/** Returns an element that the page has.
 * @param {string} id
 * @returns {any}
 */
export const byId = (id) => document.getElementById(id);

/** Creates an icon of the sprite in index.html; it is always beside a word, so hidden from screen readers. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#icon-${name}`);
  svg.append(use);
  return svg;
}

/** Splits host names, so that they wrap between each other first, and only then after a dot. */
export function hosts(text) {
  return text.split(/( [→←] |, )/u).map((piece, index) => (index % 2 ? piece : host(piece)));
}

function host(name) {
  const pieces = name.split(/(?<=[.:])/u).flatMap((piece) => [document.createElement("wbr"), piece]);
  return element("span", { class: "host" }, pieces.slice(1));
}

/** Sets an element's text only if it differs: screen readers do not repeat unchanged text. */
export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

/**
 * Gives `parent` one child per item, in order, reusing the child of a key whose signature is unchanged.
 * A child with another state is marked as changed; what had the focus in a rebuilt row gets it back, or else the row's first.
 */
export function reconcile(parent, items, { key, signature, build }) {
  const known = new Map(/** @type {HTMLElement[]} */ ([...parent.children]).map((child) => [child.dataset.key, child]));
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  const row = /** @type {HTMLElement | null | undefined} */ (focused?.closest("[data-key]"));
  const focusedKey = row?.dataset.key;
  const at = row ? stopsOf(row).indexOf(/** @type {HTMLElement} */ (focused)) : 0;
  const children = items.map((item) => {
    const name = key(item);
    const sign = signature(item);
    const old = known.get(name);
    if (old?.dataset.signature === sign) return old;
    const child = build(item);
    child.dataset.key = name;
    child.dataset.signature = sign;
    if (old && old.dataset.state !== child.dataset.state) child.classList.add("changed");
    return child;
  });
  place(parent, children);
  if (focused && !focused.isConnected) {
    const again = children.find((child) => child.dataset.key === focusedKey);
    const stops = again ? stopsOf(again) : [];
    (stops[at] ?? stops[0])?.focus();
  }
}

/** Replaces what a box has. What had the focus leaves it to what stands there now in the same words. */
export function refill(/** @type {HTMLElement} */ box, /** @type {Node[]} */ content) {
  const focused = box.contains(document.activeElement) ? document.activeElement : null;
  box.replaceChildren(...content);
  if (focused) stopsOf(box).find((stop) => stop.textContent === focused.textContent)?.focus();
}

// What Tab stops at.
function stopsOf(/** @type {HTMLElement} */ row) {
  return /** @type {HTMLElement[]} */ ([...row.querySelectorAll("a[href], button, input, select, textarea, summary")]);
}

// Moves only children that are not in place: moving a row would take the focus from it.
function place(parent, children) {
  const wanted = new Set(children);
  for (const child of [...parent.children]) if (!wanted.has(child)) child.remove();
  children.forEach((child, index) => {
    if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] ?? null);
  });
}
