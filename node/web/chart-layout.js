// Computes the series of a task's figures and their places on a chart. Pure: runs and a box in, marks out.

const SERIES_MOST = 8;
const TICKS_ABOUT = 4;

const PREFIXES = [
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

/** Returns the names of the figures of the runs, in the order of their tests. */
export function namesOf(runs) {
  return [...new Set(runs.flatMap(({ metrics }) => metrics.map(({ name }) => name)))];
}

/**
 * Returns the course of one figure: its unit, a series for each label and set of participants, and the
 * runs without it. A series is interrupted where a run of its participants lacks the figure.
 */
export function courseOf(runs, name) {
  const ordered = [...runs].sort((one, other) => one.starts - other.starts);
  const several = new Set(ordered.map(whom)).size > 1;
  const series = new Map();
  const bad = [];
  let unit = "";
  for (const run of ordered) {
    const metrics = run.metrics.filter((metric) => metric.name === name);
    if (!metrics.length) {
      bad.push(run);
      cut(series, whom(run));
      continue;
    }
    for (const metric of metrics) {
      unit = metric.unit;
      const labels = Object.values(metric.labels).map(wordsOf);
      const title = [several && whom(run), ...labels].filter(Boolean).join(", ") || wordsOf(name);
      const one = series.get(title) ?? { title, of: whom(run), pieces: [[]] };
      series.set(title, one);
      one.pieces.at(-1).push({ at: run.starts, value: metric.value, run });
    }
  }
  return { unit, bad, series: [...series.values()].slice(0, SERIES_MOST), left: Math.max(0, series.size - SERIES_MOST) };
}

const whom = ({ participants }) => participants.join(" → ");

function cut(series, participants) {
  for (const one of series.values()) {
    if (one.of === participants && one.pieces.at(-1).length) one.pieces.push([]);
  }
}

/** Formats the name of a figure or label: "rtt_median_ms" is "rtt median". */
export function wordsOf(name) {
  return name.replace(/_(?:ms|bps)$/u, "").replaceAll("_", " ");
}

/** Formats a value with its unit: 941300000 bit/s is "941 Mb/s", 0.0125 of 1 is "1.25 %", a status of 200 is "200". */
export function valueText(value, unit) {
  if (unit === "1") return value > 1 ? digits(value) : `${digits(100 * value)} %`;
  if (unit !== "bit/s") return `${digits(value)} ${unit}`;
  const [factor, prefix] = /** @type {[number, string]} */ (PREFIXES.find(([least]) => value >= least) ?? [1, ""]);
  return `${digits(value / factor)} ${prefix}b/s`;
}

function digits(value) {
  const whole = Math.abs(value) >= 1000;
  return whole ? String(Math.round(value)) : String(Number(value.toPrecision(3)));
}

/** Returns the marks of a course in a box of `left`, `right`, `top`, `bottom`, all in pixels. */
export function layOut(course, box) {
  const points = course.series.flatMap(({ pieces }) => pieces.flat());
  const times = [...points.map(({ at }) => at), ...course.bad.map(({ starts }) => starts)];
  const [from, to] = [Math.min(...times), Math.max(...times)];
  const ticks = ticksOf(points.map(({ value }) => value));
  const [low, high] = [ticks[0], ticks[ticks.length - 1]];
  const x = (at) => (to > from ? box.left + ((at - from) / (to - from)) * (box.right - box.left) : (box.left + box.right) / 2);
  const y = (value) => box.bottom - ((value - low) / (high - low)) * (box.bottom - box.top);
  const lines = course.series.map(({ title, pieces }) => ({
    title,
    paths: pieces.filter((piece) => piece.length > 1).map((piece) => pathOf(piece.map(({ at, value }) => [x(at), y(value)]))),
    dots: pieces.flat().map(({ at, value, run }) => ({ x: x(at), y: y(value), value, run })),
  }));
  return {
    from,
    to,
    lines,
    crosses: course.bad.map((run) => ({ x: x(run.starts), run })),
    ticks: ticks.map((value) => ({ y: y(value), text: valueText(value, course.unit) })),
  };
}

const pathOf = (places) => `M${places.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}`;

/** Returns round values from below the least to above the most; from 0 if that is not far away. */
export function ticksOf(values) {
  if (!values.length) return [0, 1];
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const low = least >= 0 && least <= most / 2 ? 0 : least;
  const step = roundStep((most - low || Math.abs(most) || 1) / TICKS_ABOUT);
  const first = Math.floor(low / step);
  const last = Math.max(first + 1, Math.ceil(most / step));
  return Array.from({ length: last - first + 1 }, (_, index) => Number(((first + index) * step).toPrecision(12)));
}

function roundStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * ([1, 2, 5].find((factor) => factor * power >= rough * 0.999) ?? 10);
}
