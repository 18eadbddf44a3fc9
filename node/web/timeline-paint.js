// Paints the timeline's boxes on a canvas. Colours and font come from the style sheet.
//
// States differ not only by colour: past runs are solid, booked ones outlined, those that wait for time
// low and dotted, failed ones hatched
// with a flag, missed ones hatched the other way with a dot, cancelled ones struck through.

import { KINDS } from "./timeline-layout.js";
import { dateOf, shortTimeOf, spell, timeOf } from "./words.js";

const TEXT_FROM = 54;
const RADIUS = 2.5;

/** Reads the current theme from the style sheet. */
export function readTheme(canvas, density) {
  const style = getComputedStyle(canvas);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const names = ["ink", "muted", "line", "surface", "sunken", "accent", "done", "running", "future", "waiting", "failed", "missed", "gone", "reserved", "on-bar"];
  /** @type {{ [name: string]: any }} */
  const theme = Object.fromEntries(names.map((name) => [name, colour(name)]));
  theme.family = style.fontFamily;
  theme.size = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
  theme.hatch = {
    failed: hatch(theme.failed, 1, density),
    missed: hatch(theme.missed, -1, density),
    reserved: hatch(theme.reserved, 1, density),
  };
  return theme;
}

function hatch(colour, slope, density) {
  const tile = document.createElement("canvas");
  const size = 6 * Math.ceil(density);
  tile.width = tile.height = size;
  const pen = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
  pen.strokeStyle = colour;
  pen.lineWidth = size / 3.2;
  for (const shift of [-size, 0, size]) {
    pen.moveTo(shift, slope > 0 ? size : 0);
    pen.lineTo(shift + size, slope > 0 ? 0 : size);
  }
  pen.stroke();
  return { tile, size };
}

/** Paints the whole picture: `scene` has lanes, boxes, view, ticks, now, chosen, width, height, density. */
export function paint(canvas, scene, theme) {
  const pen = canvas.getContext("2d");
  pen.setTransform(scene.density, 0, 0, scene.density, 0, 0);
  pen.clearRect(0, 0, scene.width, scene.height);
  paintGround(pen, scene, theme);
  paintLanes(pen, scene, theme);
  const brushes = brushesOf(pen, theme, scene.density);
  paintClosed(pen, scene, brushes.reserved);
  for (const box of scene.boxes) paintBox(pen, box, theme, brushes);
  paintNow(pen, scene, theme);
  paintNames(pen, scene, theme);
  if (scene.marked) paintMarked(pen, scene, theme);
  if (scene.chosen) paintChosen(pen, scene.chosen, theme);
}

function brushesOf(pen, theme, density) {
  const made = Object.entries(theme.hatch).map(([kind, { tile }]) => {
    const pattern = pen.createPattern(tile, "repeat");
    pattern.setTransform(new DOMMatrix().scale(1 / Math.ceil(density)));
    return [kind, pattern];
  });
  return Object.fromEntries(made);
}

function paintGround(pen, { view, ticks, now, marked, bottom }, theme) {
  pen.fillStyle = theme.sunken;
  pen.fillRect(view.left, view.top, Math.max(0, Math.min(now, view.right) - view.left), bottom - view.top);
  pen.font = `${11.5 * theme.size}px ${theme.family}`;
  pen.textBaseline = "alphabetic";
  pen.textAlign = "center";
  const middle = marked ? xOf((marked.from + marked.to) / 2, view) : -Infinity;
  for (const { at, x } of ticks) {
    pen.fillStyle = theme.line;
    pen.fillRect(Math.round(x), view.top, 1, bottom - view.top);
    pen.fillStyle = theme.muted;
    const told = Math.abs(x - now) < 34 * theme.size || Math.abs(x - middle) < 78 * theme.size;
    const room = !told && x > view.left + 14 && x < view.right - 14;
    const text = shortTimeOf(at);
    if (room) pen.fillText(text === "00:00" ? dateOf(at) : text, x, view.top - 7);
  }
}

function paintLanes(pen, { lanes, view, bottom }, theme) {
  pen.fillStyle = theme.line;
  for (const y of [...lanes.map((lane) => lane.y), bottom]) pen.fillRect(0, Math.round(y), view.right, 1);
}

// Reserved time spans all lanes: runs inside it were admitted, or were booked before.
function paintClosed(pen, { boxes, view, bottom }, brush) {
  pen.globalAlpha = 0.14;
  pen.fillStyle = brush;
  for (const box of boxes) {
    if (box.closure) pen.fillRect(box.x, view.top, box.width, bottom - view.top);
  }
  pen.globalAlpha = 1;
}

// The text has a rim, because on a narrow screen the names overlap the lanes and the line of now.
function paintNames(pen, { lanes, view, boxes, empty }, theme) {
  pen.textAlign = "left";
  pen.strokeStyle = theme.surface;
  pen.lineWidth = 4;
  pen.lineJoin = "round";
  for (const lane of lanes) {
    const middle = view.caption ? lane.y + view.caption : lane.y + 7 + 11;
    pen.font = `600 ${12 * theme.size}px ${theme.family}`;
    pen.fillStyle = theme.ink;
    if (view.caption) pen.strokeText(lane.name, 2, middle);
    pen.fillText(view.caption ? lane.name : fitting(pen, lane.name, view.left), view.caption ? 2 : 0, middle);
    paintNote(pen, lane, { view, middle }, theme);
  }
  if (!boxes.length) paintEmpty(pen, { lanes, view, empty }, theme);
}

// Shortens the host of a name such as "host · class" until it fits.
function fitting(pen, name, width) {
  const [first, ...rest] = name.split(" · ");
  let host = first;
  const whole = () => [host, ...rest].join(" · ");
  while (rest.length && host.length > 2 && pen.measureText(whole()).width > width) host = `${host.slice(0, -2)}…`;
  return whole();
}

function paintEmpty(pen, { lanes, view, empty }, theme) {
  pen.font = `${13 * theme.size}px ${theme.family}`;
  pen.fillStyle = theme.muted;
  pen.textAlign = "center";
  const middle = (lanes[0].y + lanes.at(-1).y + lanes.at(-1).height) / 2;
  pen.strokeText(empty, (view.left + view.right) / 2, middle + 4);
  pen.fillText(empty, (view.left + view.right) / 2, middle + 4);
}

// Explains the columns of a crowded lane.
function paintNote(pen, lane, { view, middle }, theme) {
  if (!lane.note) return;
  const seconds = Math.round(lane.note.span / 1000);
  const span = seconds < 90 ? `${seconds} s` : `${Math.round(seconds / 60)} min`;
  pen.font = `${11 * theme.size}px ${theme.family}`;
  pen.fillStyle = theme.muted;
  const text = `up to ${lane.note.most} in ${span}`;
  if (view.caption) pen.fillText(text, 110 * theme.size, middle);
  else pen.fillText(text, 0, middle + 15 * theme.size);
}

function paintBox(pen, box, theme, brushes) {
  if (box.closure) paintClosure(pen, box, theme);
  else if (box.entry) paintBar(pen, box, theme, brushes);
  else paintColumn(pen, box, theme);
}

function paintClosure(pen, box, theme) {
  outline(pen, box, 0);
  pen.fillStyle = theme.reserved;
  pen.fill();
  const { kind, name, owner } = box.closure;
  if (box.width >= TEXT_FROM) paintText(pen, box, theme, { text: `${kind} ${name} · ${owner}`, ink: theme["on-bar"] });
}

function paintColumn(pen, box, theme) {
  let bottom = box.y + box.height;
  const shown = KINDS.filter((kind) => box.counts[kind]);
  for (const kind of shown) {
    const height = (box.height * box.counts[kind]) / box.total;
    pen.globalAlpha = { future: 0.45, waiting: 0.2 }[kind] ?? 1;
    pen.fillStyle = theme[kind];
    pen.fillRect(box.x, bottom - height, box.width, height);
    pen.globalAlpha = 1;
    bottom -= height;
  }
  if (box.counts.failed) paintFlag(pen, box, theme.failed);
  else if (box.counts.missed) paintDot(pen, box, theme.missed);
}

function outline(pen, { x, y, width, height }, inset) {
  const radius = Math.min(RADIUS, width / 2);
  pen.beginPath();
  pen.roundRect(x + inset, y + inset, Math.max(1, width - 2 * inset), height - 2 * inset, radius);
}

function paintBar(pen, box, theme, brushes) {
  const { kind } = box.entry;
  const solid = kind === "done" || kind === "running";
  if (solid) {
    outline(pen, box, 0);
    pen.fillStyle = theme[kind];
    pen.fill();
  } else if (kind === "waiting") {
    paintWaiting(pen, box, theme);
  } else {
    paintHollow(pen, box, theme, brushes[kind]);
  }
  if (kind === "gone") pen.fillRect(box.x, box.y + box.height / 2 - 0.75, box.width, 1.5);
  else if (kind === "failed") paintFlag(pen, box, theme.failed);
  else if (kind === "missed") paintDot(pen, box, theme.missed);
  if (box.width >= TEXT_FROM && kind !== "gone" && kind !== "waiting") paintLabel(pen, box, theme, solid);
}

// A run without a time is where its slot is, so it is drawn as less than a run that is booked.
function paintWaiting(pen, box, theme) {
  outline(pen, { ...box, y: box.y + box.height / 2, height: box.height / 2 }, 0.5);
  pen.strokeStyle = theme.waiting;
  pen.lineWidth = 1;
  pen.setLineDash([1.5, 2]);
  pen.stroke();
  pen.setLineDash([]);
}

// Draws an outline in the colour of the kind, over hatching if there is any; dashed until agreed.
function paintHollow(pen, box, theme, brush) {
  const { kind, state } = box.entry;
  // A narrow bar has a thinner line, so that it stays hollow.
  const line = box.width < 8 ? 1 : 1.5;
  outline(pen, box, line / 2);
  for (const fill of [theme.surface, brush].filter(Boolean)) {
    pen.fillStyle = fill;
    pen.fill();
  }
  pen.fillStyle = pen.strokeStyle = theme[kind];
  pen.lineWidth = line;
  pen.setLineDash(kind === "future" && state !== "scheduled" ? [3, 2] : []);
  pen.stroke();
  pen.setLineDash([]);
}

function paintFlag(pen, box, colour) {
  const middle = box.x + Math.min(box.width, 12) / 2;
  pen.beginPath();
  pen.moveTo(middle - 4.5, box.y - 5);
  pen.lineTo(middle + 4.5, box.y - 5);
  pen.lineTo(middle, box.y + 1);
  pen.fillStyle = colour;
  pen.fill();
}

function paintDot(pen, box, colour) {
  pen.beginPath();
  pen.arc(box.x + Math.min(box.width, 12) / 2, box.y - 2, 2.6, 0, 2 * Math.PI);
  pen.fillStyle = colour;
  pen.fill();
}

function paintLabel(pen, box, theme, solid) {
  const { headline: text, kind } = box.entry;
  const ground = kind === "failed" || kind === "missed" ? theme.surface : null;
  paintText(pen, box, theme, { text, ground, ink: solid ? theme["on-bar"] : theme.ink });
}

function paintText(pen, box, theme, { text, ink, ground = null }) {
  pen.save();
  pen.beginPath();
  pen.rect(box.x + 4, box.y, box.width - 8, box.height);
  pen.clip();
  pen.font = `500 ${10.5 * Math.min(theme.size, 1.1)}px ${theme.family}`;
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  if (ground) {
    pen.fillStyle = ground;
    pen.fillRect(box.x + 4, box.y + 1.5, pen.measureText(text).width + 6, box.height - 3);
  }
  pen.fillStyle = ink;
  pen.fillText(text, box.x + 7, box.y + box.height / 2 + 0.5);
  pen.restore();
}

function paintNow(pen, { view, now, nowText, bottom }, theme) {
  if (now < view.left || now > view.right) return;
  pen.fillStyle = theme.accent;
  pen.fillRect(Math.round(now) - 0.75, view.top - 4, 1.5, bottom - view.top + 4);
  paintFlagged(pen, { text: nowText, x: now, view }, theme);
}

// A text on a ground of its own, above the lanes.
function paintFlagged(pen, { text, x, view }, theme) {
  pen.font = `600 ${11.5 * theme.size}px ${theme.family}`;
  const width = pen.measureText(text).width + 12;
  const left = Math.max(0, Math.min(x - width / 2, view.right - width));
  pen.fillStyle = theme.accent;
  pen.beginPath();
  pen.roundRect(left, view.top - 4 - 17 * theme.size, width, 17 * theme.size, 4);
  pen.fill();
  pen.fillStyle = theme.surface;
  pen.textAlign = "left";
  pen.fillText(text, left + 6, view.top - 4 - 4.5 * theme.size);
}

const xOf = (instant, view) => view.left + ((instant - view.from) * (view.right - view.left)) / (view.to - view.from);

function paintMarked(pen, { view, marked, bottom }, theme) {
  const [left, right] = [marked.from, marked.to].map((at) => Math.min(view.right, Math.max(view.left, xOf(at, view))));
  pen.fillStyle = theme.accent;
  pen.globalAlpha = 0.2;
  pen.fillRect(left, view.top, right - left, bottom - view.top);
  pen.globalAlpha = 1;
  for (const x of [left, right]) pen.fillRect(x - 0.75, view.top - 4, 1.5, bottom - view.top + 4);
  const text = `${timeOf(marked.from)}, ${spell(marked.to - marked.from)}`;
  paintFlagged(pen, { text, x: (left + right) / 2, view }, theme);
}

function paintChosen(pen, box, theme) {
  pen.strokeStyle = theme.ink;
  pen.lineWidth = 2;
  outline(pen, { x: box.x - 2.5, y: box.y - 2.5, width: box.width + 5, height: box.height + 5 }, 0);
  pen.stroke();
}
