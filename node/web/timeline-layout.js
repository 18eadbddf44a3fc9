// Computes the place of each run on the timeline. Pure: entries and a view in, boxes out.
//
// A lane shows each run as a bar, overlapping ones in rows. A lane with more runs than fit turns into
// columns: each stands for a few pixels of time, and its height is the number of runs in it, with the
// failed ones on top.

export const LANES = ["exclusive", "normal", "background", "background-multi"];

const ROWS_MOST = 5;
const ROW = 16;
const BAR = 13;
const BAR_NARROWEST = 4;
const PADDING = 7;
const COLUMN = 6;
const COLUMNS_HIGH = 3.5 * ROW;
const CROWDED_FROM = 20;

// From the bottom of a column to its top.
export const KINDS = ["done", "running", "future", "waiting", "gone", "missed", "failed"];

/** The lanes of one host: one for each class. */
export const CLASS_LANES = LANES.map((name) => ({ name, lane: name, of: (entries) => entries.filter((entry) => entry.lane === name) }));

/** Returns the lanes of hosts: one for each class that has runs there. */
export function hostLanes(hosts, entries) {
  const runs = new Map(hosts.map((host) => [host, Object.fromEntries(LANES.map((lane) => [lane, []]))]));
  for (const entry of entries) for (const host of entry.participants) runs.get(host)?.[entry.lane]?.push(entry);
  return hosts.flatMap((host) =>
    LANES.filter((lane) => runs.get(host)[lane].length).map((lane) => ({ name: `${host} · ${lane}`, lane, of: () => runs.get(host)[lane] })),
  );
}

/**
 * Returns lanes and boxes for entries sorted by start; `view` has from, to, left, right, top, caption.
 * Reserved time has its own lane above the others. Of crowded lanes `dense` has pieces with counts.
 * `wanted` are the lanes: what each is called, its class, and which of the entries are its own.
 */
export function layOut(entries, reserved, dense, view, wanted = CLASS_LANES) {
  const scale = (view.right - view.left) / (view.to - view.from);
  const xOf = (instant) => view.left + (instant - view.from) * scale;
  const boxes = [];
  const lanes = [];
  let y = view.top;
  const add = (name, count, lane, kind = name) => {
    const inner = y + view.caption + PADDING;
    for (const box of lane.boxes) {
      box.lane = kind;
      box.y += inner;
      boxes.push(box);
    }
    const height = view.caption + 2 * PADDING + lane.height;
    lanes.push({ name, y, height, note: lane.note, count });
    y += height;
  };
  if (reserved.length) add("reserved", reserved.length, closures(reserved, xOf, view));
  for (const { name, lane, of } of wanted) {
    if (dense.has(name)) {
      add(name, null, pieceColumns(dense.get(name), xOf, view));
      continue;
    }
    const own = of(entries);
    add(name, own.length, bars(own, xOf, view, lane === "exclusive") ?? columns(own, xOf, view, scale), lane);
  }
  return { lanes, boxes, bottom: y };
}

// Overlapping reservations are drawn in rows, and in the last row if there are too many.
function closures(reserved, xOf, view) {
  const ends = [];
  const boxes = reserved.map((closure) => {
    const free = ends.findIndex((end) => end <= closure.starts);
    const index = free < 0 ? Math.min(ends.length, ROWS_MOST - 1) : free;
    ends[index] = Math.max(ends[index] ?? 0, closure.ends);
    return { ...extent(closure, xOf, view), y: index * ROW, height: BAR, closure };
  });
  return { boxes, height: ends.length * ROW - (ROW - BAR), note: null };
}

function extent(entry, xOf, view) {
  const x = Math.max(view.left, xOf(entry.starts));
  const right = Math.min(view.right, xOf(entry.ends));
  return { x, width: Math.max(BAR_NARROWEST, right - x) };
}

// Returns bars, or null if they need too many rows. Exclusive runs never share time, so a row is added
// only where they really overlap (a displaced run below the one that took its time).
function bars(entries, xOf, view, exclusive) {
  if (entries.length > (ROWS_MOST * (view.right - view.left)) / BAR_NARROWEST) return null;
  const rows = [];
  let crowded = 0;
  const boxes = [];
  for (const entry of entries) {
    const { x, width } = extent(entry, xOf, view);
    const free = rows.findIndex((row) => (exclusive ? row.ends <= entry.starts : row.right < x));
    const index = free < 0 ? rows.length : free;
    if (index >= ROWS_MOST) return null;
    if (exclusive && free >= 0 && rows[free].right > x) crowded += 1;
    rows[index] = { right: x + width + 1, ends: entry.ends };
    boxes.push({ x, y: index * ROW, width, height: BAR, entry });
  }
  if (crowded > CROWDED_FROM) return null;
  return { boxes, height: Math.max(1, rows.length) * ROW - (ROW - BAR), note: null };
}

// Columns begin at multiples of their span, so that they do not flicker as time passes.
function columns(entries, xOf, view, scale) {
  const span = COLUMN / scale;
  const buckets = new Map();
  for (const entry of entries) {
    const last = Math.floor((Math.min(entry.ends, view.to) - 1) / span);
    for (let at = Math.floor(Math.max(entry.starts, view.from) / span); at <= last; at += 1) {
      if (!buckets.has(at)) buckets.set(at, []);
      buckets.get(at).push(entry);
    }
  }
  const most = Math.max(...[...buckets.values()].map((bucket) => bucket.length));
  const boxes = [...buckets].map(([at, bucket]) => column(at * span, span, bucket, { xOf, view, most }));
  boxes.sort((one, other) => one.x - other.x);
  return { boxes, height: COLUMNS_HIGH, note: { most, span } };
}

function column(from, span, bucket, { xOf, view, most }) {
  const counts = Object.fromEntries(KINDS.map((kind) => [kind, 0]));
  for (const entry of bucket) counts[entry.kind] += 1;
  return { ...columnBox(from, from + span, counts, { xOf, view, most }), entries: bucket };
}

function columnBox(from, to, counts, { xOf, view, most }) {
  const total = totalOf(counts);
  const x = Math.max(view.left, xOf(from));
  const width = Math.max(1, Math.min(view.right, xOf(to)) - x - 1);
  const height = Math.max(3, (COLUMNS_HIGH * total) / most);
  return { x, y: COLUMNS_HIGH - height, width, height, counts, total, from, to };
}

const totalOf = (counts) => Object.values(counts).reduce((sum, count) => sum + count, 0);

// The columns of a lane that the node has summed up.
function pieceColumns(pieces, xOf, view) {
  const shown = pieces.filter(({ from, to }) => to > view.from && from < view.to);
  const most = Math.max(1, ...shown.map(({ counts }) => totalOf(counts)));
  const boxes = shown.map(({ from, to, counts, busy }) => ({ ...columnBox(from, to, counts, { xOf, view, most }), busy }));
  return { boxes, height: COLUMNS_HIGH, note: { most, span: shown.length ? shown[0].to - shown[0].from : 0 } };
}

const PIECES = 220;
const PIECE_STEPS = [5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600].map((seconds) => seconds * 1000);

/** Returns the length of the pieces into which a span is cut for its columns. */
export function pieceOf({ from, to }) {
  return PIECE_STEPS.find((step) => step * PIECES >= to - from) ?? PIECE_STEPS[PIECE_STEPS.length - 1];
}

const MINUTE = 60_000;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880].map((minutes) => minutes * MINUTE);

/** Returns instants for the axis at round local times, at least `apart` pixels from each other. */
export function axisTicks(view, apart) {
  const scale = (view.right - view.left) / (view.to - view.from);
  const step = STEPS.find((span) => span * scale >= apart) ?? STEPS[STEPS.length - 1];
  const shift = new Date(view.from).getTimezoneOffset() * MINUTE;
  const ticks = [];
  for (let at = Math.ceil((view.from - shift) / step) * step + shift; at < view.to; at += step) {
    ticks.push({ at, x: view.left + (at - view.from) * scale });
  }
  return ticks;
}

const GRAINS = [1, 5, 10, 30, 60, 300, 900, 3600].map((seconds) => seconds * 1000);
const GRAIN_LEAST = 2;

// What is marked is as exact as some pixels are.
function grainOf({ left, right, from, to }) {
  const scale = (right - left) / (to - from);
  return GRAINS.find((grain) => grain * scale >= GRAIN_LEAST) ?? GRAINS[GRAINS.length - 1];
}

const secondAfter = (now) => Math.ceil(now / 1000) * 1000;

/** Returns the span between two instants in round times, without what is past; null if nothing is left. */
export function markedSpan(one, other, view, now) {
  const grain = grainOf(view);
  const [first, last] = [Math.min(one, other), Math.max(one, other)].map((at) => Math.round(at / grain) * grain);
  const from = Math.max(first, secondAfter(now));
  return last > from ? { from, to: last } : null;
}

/** Returns the span of a run that is moved to a round time, not before now. */
export function movedSpan({ starts, ends }, by, view, now) {
  const grain = grainOf(view);
  const from = Math.max(Math.round((starts + by) / grain) * grain, secondAfter(now));
  return { from, to: from + ends - starts };
}

/** Returns the box at a point, or the nearest one within `reach` pixels. */
export function boxAt(boxes, x, y, reach) {
  /** @type {any} */
  let best = null;
  let least = reach;
  for (const box of boxes) {
    const beside = Math.max(box.x - x, 0, x - box.x - box.width);
    const above = Math.max(box.y - y, 0, y - box.y - box.height);
    const away = Math.max(beside, above);
    if (away <= least && (best === null || away < least)) [best, least] = [box, away];
  }
  return best;
}
