// A matrix of squares on a canvas: rows of sources, columns of destinations. The canvas is as large as what is seen of the matrix,
// whose size scrolls behind it. The mouse, the arrow keys and a touch choose a square; Enter, a click and a touch open it.

import { element } from "./dom.js";
import { coloursOf, Tiles } from "./matrix-paint.js";

// The squares of up to so many columns have these sizes, in pixels; values are written into the large ones.
const SIZES = [
  { most: 8, width: 92, height: 34 },
  { most: 16, width: 62, height: 28 },
  { most: 40, width: 26, height: 22 },
  { most: 100, width: 16, height: 16 },
  { most: Infinity, width: 11, height: 11 },
];
const HEAD_MOST = 150;
const FONT = 12;
const FONT_SMALL = 10;
const STEP = 10;

/**
 * @typedef {{ look: string, text: string, isDoubtful: boolean }} Cell
 * @typedef {object} Content
 * @property {string[]} rows
 * @property {string[]} columns
 * @property {(row: number, column: number) => Cell | null} cellAt what a square has; null if no pair is there
 * @property {(row: number, column: number) => (Node | string)[]} tell what is said of a square
 * @property {(row: number, column: number) => void} open
 * @property {string} label
 */

export class Matrix {
  #canvas = element("canvas", { tabindex: "0", role: "application" });
  #space = element("div", { class: "matrix-space" }, this.#canvas);
  #scroller = element("div", { class: "matrix-scroll", tabindex: "-1" }, this.#space);
  #tip = element("div", { class: "tip", role: "status", hidden: true });
  box = element("div", { class: "matrix" }, this.#scroller, this.#tip);
  /** @type {Content} */
  #content;
  /** @type {[number, number] | null} the row and the column */
  #chosen = null;
  /** @type {Tiles | null} */
  #tiles = null;
  /** @type {import("./matrix-paint.js").Colours | null} */
  #colours = null;
  #density = 0;
  #size = SIZES[0];
  #left = 0;
  #top = 0;
  #frame = 0;
  #observer = new ResizeObserver(() => this.draw());
  #scheme = matchMedia("(prefers-color-scheme: dark)");
  #recolour = () => {
    this.#tiles = null;
    this.draw();
  };

  /** @param {Content} content */
  constructor(content) {
    this.#content = content;
    this.#scroller.addEventListener("scroll", () => {
      // The arrow keys move the matrix under their square; anything else moves it away.
      if (this.#chosen && this.hasFocus) this.#place(this.#chosen);
      else this.#choose(null);
      this.draw();
    });
    this.#canvas.addEventListener("pointermove", (event) => event.pointerType === "mouse" && this.#choose(this.#at(event)));
    this.#canvas.addEventListener("pointerleave", () => document.activeElement !== this.#canvas && this.#choose(null));
    this.#canvas.addEventListener("click", (event) => {
      const at = this.#at(event);
      this.#choose(at);
      if (at) this.#content.open(at[0], at[1]);
    });
    this.#canvas.addEventListener("keydown", (event) => this.#onKey(event));
    this.#canvas.addEventListener("focus", () => this.#canvas.matches(":focus-visible") && this.#choose(this.#chosen ?? this.#first()));
    this.#canvas.addEventListener("blur", () => this.#choose(null));
    this.#observer.observe(this.#scroller);
    this.#scheme.addEventListener("change", this.#recolour);
    this.show(content);
  }

  /** Shows other content in the same place. @param {Content} content */
  show(content) {
    this.#content = content;
    this.#canvas.setAttribute("aria-label", content.label);
    this.#measure();
    this.draw();
    if (this.#chosen && !this.#tip.hidden) this.#choose(this.#chosen);
  }

  close() {
    this.#observer.disconnect();
    this.#scheme.removeEventListener("change", this.#recolour);
    cancelAnimationFrame(this.#frame);
  }

  focus() {
    this.#canvas.focus();
  }

  get hasFocus() {
    return document.activeElement === this.#canvas;
  }

  /** Draws once the browser draws next. */
  draw() {
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => this.paint());
  }

  // The names beside and above the squares are as long as the longest one, within a bound.
  #measure() {
    const { rows, columns } = this.#content;
    this.#size = SIZES.find(({ most }) => Math.max(rows.length, columns.length) <= most) ?? SIZES[SIZES.length - 1];
    const longest = (names) => Math.min(HEAD_MOST, 14 + Math.max(0, ...names.map((name) => name.length)) * FONT * 0.56);
    this.#left = longest(rows);
    this.#top = this.#upright ? longest(columns) : FONT + 12;
    this.#space.style.width = `${this.#left + columns.length * this.#size.width + 2}px`;
    this.#space.style.height = `${this.#top + rows.length * this.#size.height + 2}px`;
  }

  // The names of narrow columns are written upwards.
  get #upright() {
    const longest = Math.max(0, ...this.#content.columns.map((name) => name.length)) * FONT * 0.56;
    return longest > this.#size.width - 4;
  }

  /** Draws what is seen of the matrix. */
  paint() {
    const view = { width: Math.min(this.#scroller.clientWidth, this.#space.offsetWidth), height: Math.min(this.#scroller.clientHeight, this.#space.offsetHeight) };
    if (!view.width || !view.height) return;
    const density = devicePixelRatio;
    if (!this.#tiles || density !== this.#density) {
      this.#colours = coloursOf(this.box);
      this.#tiles = new Tiles(this.#colours, density);
      this.#density = density;
    }
    const canvas = this.#canvas;
    const [width, height] = [view.width, view.height].map((length) => Math.round(length * density));
    if (canvas.width !== width || canvas.height !== height) {
      [canvas.width, canvas.height] = [width, height];
      canvas.style.width = `${view.width}px`;
      canvas.style.height = `${view.height}px`;
    }
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    context.setTransform(density, 0, 0, density, 0, 0);
    context.clearRect(0, 0, view.width, view.height);
    context.font = `500 ${this.#size.height > FONT + 2 ? FONT : FONT_SMALL}px ${this.#colours?.font}`;
    context.textBaseline = "middle";
    this.#paintSquares(context, view);
    this.#paintNames(context, view);
  }

  #seen({ width, height }) {
    const { scrollLeft, scrollTop } = this.#scroller;
    const { rows, columns } = this.#content;
    const within = (from, length, step, count) => [Math.max(0, Math.floor(from / step)), Math.min(count, Math.ceil((from + length) / step))];
    return {
      scrollLeft,
      scrollTop,
      rows: within(scrollTop, height - this.#top, this.#size.height, rows.length),
      columns: within(scrollLeft, width - this.#left, this.#size.width, columns.length),
    };
  }

  #paintSquares(context, view) {
    const seen = this.#seen(view);
    const { cellAt } = this.#content;
    context.save();
    context.beginPath();
    context.rect(this.#left, this.#top, view.width - this.#left, view.height - this.#top);
    context.clip();
    context.textAlign = "center";
    const squares = [];
    for (let row = seen.rows[0]; row < seen.rows[1]; row += 1) {
      for (let column = seen.columns[0]; column < seen.columns[1]; column += 1) {
        const cell = cellAt(row, column);
        if (cell) squares.push({ cell, row, column });
      }
    }
    context.save();
    context.translate(this.#left - seen.scrollLeft, this.#top - seen.scrollTop);
    this.#tiles?.paint(context, squares, this.#size);
    context.restore();
    if (this.#chosen) this.#paintChosen(context, seen);
    context.restore();
  }

  // Around the chosen square, and thinner around the one of the other direction.
  #paintChosen(context, { scrollLeft, scrollTop }) {
    const [row, column] = /** @type {[number, number]} */ (this.#chosen);
    const { rows, columns } = this.#content;
    const back = [rows.indexOf(columns[column]), columns.indexOf(rows[row])];
    for (const [[at, beside], line] of /** @type {[number[], number][]} */ ([[back, 1], [[row, column], 2]])) {
      if (at < 0 || beside < 0) continue;
      context.strokeStyle = this.#colours?.[line === 2 ? "accent" : "strong-line"];
      context.lineWidth = line;
      const { width, height } = this.#size;
      context.strokeRect(this.#left + beside * width - scrollLeft + 1, this.#top + at * height - scrollTop + 1, width - 2, height - 2);
    }
  }

  #paintNames(context, view) {
    const seen = this.#seen(view);
    const { rows, columns } = this.#content;
    const { width, height } = this.#size;
    const [row, column] = this.#chosen ?? [-1, -1];
    const colour = (isChosen) => (isChosen ? this.#colours?.accent : this.#colours?.ink);
    context.textAlign = "left";
    context.save();
    context.beginPath();
    context.rect(0, this.#top, this.#left, view.height - this.#top);
    context.clip();
    for (let at = seen.rows[0]; at < seen.rows[1]; at += 1) {
      context.fillStyle = colour(at === row);
      context.fillText(rows[at], 2, this.#top + (at + 0.5) * height - seen.scrollTop, this.#left - 8);
    }
    context.restore();
    context.beginPath();
    context.rect(this.#left, 0, view.width - this.#left, this.#top);
    context.save();
    context.clip();
    for (let at = seen.columns[0]; at < seen.columns[1]; at += 1) {
      context.fillStyle = colour(at === column);
      const x = this.#left + (at + 0.5) * width - seen.scrollLeft;
      if (!this.#upright) {
        context.textAlign = "center";
        context.fillText(columns[at], x, this.#top / 2, width - 4);
        continue;
      }
      context.save();
      context.translate(x, this.#top - 4);
      context.rotate(-Math.PI / 2);
      context.fillText(columns[at], 0, 0, this.#top - 8);
      context.restore();
    }
    context.restore();
  }

  // ---- choosing

  #at({ offsetX, offsetY }) {
    const row = Math.floor((offsetY - this.#top + this.#scroller.scrollTop) / this.#size.height);
    const column = Math.floor((offsetX - this.#left + this.#scroller.scrollLeft) / this.#size.width);
    if (offsetX < this.#left || offsetY < this.#top) return null;
    return this.#has(row, column) ? /** @type {[number, number]} */ ([row, column]) : null;
  }

  #has(row, column) {
    const { rows, columns, cellAt } = this.#content;
    return row >= 0 && column >= 0 && row < rows.length && column < columns.length && cellAt(row, column) !== null;
  }

  #first() {
    const { rows, columns } = this.#content;
    for (let row = 0; row < rows.length; row += 1) {
      for (let column = 0; column < columns.length; column += 1) if (this.#has(row, column)) return /** @type {[number, number]} */ ([row, column]);
    }
    return null;
  }

  #choose(at) {
    const same = at && this.#chosen && at[0] === this.#chosen[0] && at[1] === this.#chosen[1] && !this.#tip.hidden;
    if (same) return;
    this.#chosen = at;
    this.#canvas.classList.toggle("over", at !== null);
    this.#tip.hidden = at === null;
    if (at) {
      this.#tip.replaceChildren(...this.#content.tell(at[0], at[1]));
      this.#place(at);
    }
    this.draw();
  }

  // Beside the square, within the matrix or the window.
  #place([row, column]) {
    const { scrollLeft, scrollTop } = this.#scroller;
    const x = this.#left + (column + 1) * this.#size.width - scrollLeft + 6;
    const y = this.#top + (row + 1) * this.#size.height - scrollTop + 6;
    const within = this.box.getBoundingClientRect();
    const room = document.documentElement.clientWidth - within.left - this.#tip.offsetWidth - 8;
    const above = within.top + y + this.#tip.offsetHeight > innerHeight ? this.#tip.offsetHeight + this.#size.height + 12 : 0;
    this.#tip.style.left = `${Math.max(-within.left + 8, Math.min(x, room))}px`;
    this.#tip.style.top = `${y - above}px`;
  }

  #onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { rows, columns, open } = this.#content;
    if (event.key === "Escape") return this.#choose(null);
    if (event.key === "Enter") return this.#chosen && open(this.#chosen[0], this.#chosen[1]);
    /** @type {Record<string, [number, number]>} */
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-STEP, 0], PageDown: [STEP, 0], Home: [0, -columns.length], End: [0, columns.length] };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    this.#choose(this.#beyond(move, rows.length, columns.length));
    if (this.#chosen) this.#reveal(this.#chosen);
  }

  // The next square in a direction; the nearest one that is there at a border.
  #beyond([down, right], rows, columns) {
    const from = this.#chosen ?? this.#first();
    if (!from || !this.#chosen) return from;
    const clamp = (value, count) => Math.max(0, Math.min(count - 1, value));
    const [rowStep, columnStep] = [Math.sign(down), Math.sign(right)];
    let [row, column] = [clamp(from[0] + down, rows), clamp(from[1] + right, columns)];
    const back = Math.abs(down) > 1 || Math.abs(right) > 1 ? -1 : 1;
    while (row >= 0 && column >= 0 && row < rows && column < columns) {
      if (this.#has(row, column)) return /** @type {[number, number]} */ ([row, column]);
      row += back * rowStep;
      column += back * columnStep;
    }
    return from;
  }

  #reveal([row, column]) {
    const { width, height } = this.#size;
    const scroller = this.#scroller;
    const into = (from, room, at, step) => (at * step < from ? at * step : (at + 1) * step > from + room ? (at + 1) * step - room : from);
    scroller.scrollLeft = into(scroller.scrollLeft, scroller.clientWidth - this.#left, column, width);
    scroller.scrollTop = into(scroller.scrollTop, scroller.clientHeight - this.#top, row, height);
    this.#place([row, column]);
    this.#tip.hidden = false;
  }
}

/**
 * Returns a picture of a look, for a legend.
 * @param {string} look
 * @param {import("./matrix-paint.js").Colours} colours
 */
export function swatch(look, colours, { isDoubtful = false } = {}) {
  const size = { width: 22, height: 16 };
  const density = devicePixelRatio;
  const canvas = element("canvas", { class: "square", width: size.width * density, height: size.height * density, "aria-hidden": "true" });
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.scale(density, density);
  new Tiles(colours, density).paint(context, [{ cell: { look, text: "", isDoubtful }, row: 0, column: 0 }], size);
  return canvas;
}
