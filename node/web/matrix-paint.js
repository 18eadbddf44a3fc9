// Paints the squares of a matrix: the colour of each judgement, its pattern, its value, and a mark for a doubt. A look is painted
// once, as a tile that fills all its squares one look after the other, so that a matrix of 300 nodes scrolls smoothly.

import { LOOKS } from "./outcomes.js";

const STROKE = 1.5;
// Squares that are smaller have no value in them.
const TEXT_LEAST = 36;

/** @typedef {{ [name: string]: string }} Colours the page's colours by name, and its font */

/**
 * Returns the page's colours as they are now.
 * @param {Element} within
 * @returns {Colours}
 */
export function coloursOf(within) {
  const style = getComputedStyle(within);
  const names = ["surface", "ink", "muted", "line", "strong-line", "accent", "done", "failed", "missed", "gone", "doubt", "on-bar"];
  return { ...Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()])), font: style.fontFamily };
}

export class Tiles {
  /** @type {Map<string, CanvasPattern>} by look, of the last size */
  #tiles = new Map();
  #width = 0;
  #height = 0;
  #colours;
  #density;

  /** @param {Colours} colours @param {number} density device pixels of a pixel */
  constructor(colours, density) {
    this.#colours = colours;
    this.#density = density;
  }

  /**
   * Paints squares of a grid, whose first one has its left top corner at the origin.
   * @param {CanvasRenderingContext2D} context
   * @param {{ cell: { look: string, text: string, isDoubtful: boolean }, row: number, column: number }[]} squares
   * @param {{ width: number, height: number }} size
   */
  paint(context, squares, { width, height }) {
    /** @type {Map<string, typeof squares>} */
    const byLook = new Map();
    for (const square of squares) {
      const alike = byLook.get(square.cell.look);
      if (alike) alike.push(square);
      else byLook.set(square.cell.look, [square]);
    }
    for (const [look, alike] of byLook) {
      context.fillStyle = this.#tile(context, look, width, height);
      for (const { row, column } of alike) context.fillRect(column * width, row * height, width, height);
    }
    for (const { cell, row, column } of squares) {
      if (cell.isDoubtful) this.#paintDoubt(context, (column + 1) * width, row * height);
      if (!cell.text || width < TEXT_LEAST) continue;
      context.fillStyle = cell.look === "no-answer" ? this.#colours["on-bar"] : this.#colours.ink;
      context.fillText(cell.text, (column + 0.5) * width, (row + 0.5) * height, width - 6);
    }
  }

  // A triangle in a corner: a doubt is no judgement, and changes no colour.
  #paintDoubt(context, right, top) {
    context.fillStyle = this.#colours.doubt;
    context.beginPath();
    context.moveTo(right - 1, top + 1);
    context.lineTo(right - 1, top + 8);
    context.lineTo(right - 8, top + 1);
    context.fill();
  }

  #tile(context, look, width, height) {
    if (width !== this.#width || height !== this.#height) this.#tiles.clear();
    [this.#width, this.#height] = [width, height];
    let tile = this.#tiles.get(look);
    if (!tile) {
      const made = this.#made(look, width, height);
      tile = /** @type {CanvasPattern} */ (context.createPattern(made, "repeat"));
      tile.setTransform(new DOMMatrix().scale(width / made.width, height / made.height));
      this.#tiles.set(look, tile);
    }
    return tile;
  }

  #made(look, width, height) {
    const tile = document.createElement("canvas");
    [tile.width, tile.height] = [width, height].map((length) => Math.round(length * this.#density));
    const context = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
    context.scale(this.#density, this.#density);
    const { colour, fill, pattern, mark } = LOOKS[look];
    const gap = width > 8 ? 1 : 0.5;
    const box = { left: gap, top: gap, right: width - gap, bottom: height - gap };
    context.fillStyle = context.strokeStyle = this.#colours[colour];
    context.lineWidth = STROKE;
    context.globalAlpha = fill;
    context.fillRect(box.left, box.top, box.right - box.left, box.bottom - box.top);
    context.globalAlpha = 1;
    context.beginPath();
    context.rect(box.left, box.top, box.right - box.left, box.bottom - box.top);
    context.clip();
    context.fillStyle = context.strokeStyle = this.#colours[mark ?? colour];
    PATTERNS[pattern](context, box);
    return tile;
  }
}

/** @type {Record<string, (context: CanvasRenderingContext2D, box: { left: number, top: number, right: number, bottom: number }) => void>} */
const PATTERNS = {
  plain() {},
  cross(context, { left, top, bottom }) {
    const size = Math.min(7, (bottom - top) * 0.4);
    context.beginPath();
    context.moveTo(left + 2, top + 2);
    context.lineTo(left + 2 + size, top + 2 + size);
    context.moveTo(left + 2 + size, top + 2);
    context.lineTo(left + 2, top + 2 + size);
    context.stroke();
  },
  corner(context, { left, bottom, top }) {
    const size = Math.min(9, (bottom - top) * 0.5);
    context.beginPath();
    context.moveTo(left, bottom);
    context.lineTo(left, bottom - size);
    context.lineTo(left + size, bottom);
    context.fill();
  },
  dot(context, { left, top, bottom }) {
    const size = Math.min(3, (bottom - top) * 0.22);
    context.beginPath();
    context.arc(left + size + 2, top + size + 2, size, 0, 7);
    context.fill();
  },
  stripes(context, { left, top, right, bottom }) {
    context.lineWidth = 1;
    context.globalAlpha = 0.55;
    context.beginPath();
    for (let x = left - (bottom - top); x < right; x += 5) {
      context.moveTo(x, bottom);
      context.lineTo(x + (bottom - top), top);
    }
    context.stroke();
  },
  dots(context, { left, top, right, bottom }) {
    context.globalAlpha = 0.7;
    for (let y = top + 2.5; y < bottom - 1; y += 5) for (let x = left + 2.5; x < right - 1; x += 5) context.fillRect(x, y, 1.2, 1.2);
  },
  dashed(context, { left, top, right, bottom }) {
    context.setLineDash([3, 2.5]);
    context.strokeRect(left + 1, top + 1, right - left - 2, bottom - top - 2);
  },
  barred(context, { left, top, right, bottom }) {
    context.strokeRect(left + 1, top + 1, right - left - 2, bottom - top - 2);
    context.beginPath();
    context.moveTo(left, bottom);
    context.lineTo(right, top);
    context.stroke();
  },
};
