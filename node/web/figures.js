// Figures of results in words, and their course over runs. Pure.

/** @typedef {{ name: string, value: number, unit: string, labels: { [name: string]: string } }} Metric */

/** @type {[number, string][]} */
const PREFIXES = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];

/**
 * Returns the names of the figures of runs, in the order of their tests.
 * @param {{ metrics: Metric[] }[]} runs
 */
export function figuresOf(runs) {
  return [...new Set(runs.flatMap(({ metrics }) => metrics.map(({ name }) => name)))];
}

/**
 * Formats the name of a figure or label: "rtt_median_ms" is "rtt median".
 * @param {string} name
 */
export function wordsOf(name) {
  return name.replace(/_(?:ms|bps)(?=$|\.)/u, "").replaceAll(/[_.]/gu, " ");
}

/**
 * Formats a value with its unit: 941300000 bit/s is "941 Mb/s", 0.0125 of 1 is "1.25 %", a status of 200 is "200".
 * @param {number} value
 * @param {string} unit
 * @param {number} [precision] of how many digits
 */
export function valueText(value, unit, precision = 3) {
  if (unit === "1") return value > 1 ? digits(value, precision) : `${digits(100 * value, precision)} %`;
  if (unit !== "bit/s") return `${digits(value, precision)} ${unit}`;
  const [factor, prefix] = /** @type {[number, string]} */ (PREFIXES.find(([least]) => value >= least) ?? [1, ""]);
  return `${digits(value / factor, precision)} ${prefix}b/s`;
}

/**
 * @param {number} value
 * @param {number} precision
 */
function digits(value, precision) {
  const whole = Math.abs(value) >= 1000 && precision <= 3;
  return whole ? String(Math.round(value)) : String(Number(value.toPrecision(precision)));
}

const PRECISION_MOST = 9;

/**
 * Formats the values of an axis with as many digits as tell them apart.
 * @param {number[]} values
 * @param {string} unit
 */
export function tickTexts(values, unit) {
  const texts = (/** @type {number} */ precision) => values.map((value) => valueText(value, unit, precision));
  let precision = 3;
  while (precision < PRECISION_MOST && new Set(texts(precision)).size < new Set(values).size) precision++;
  return texts(precision);
}

/**
 * Formats a figure with its name: "delay median forward 10.3 ms".
 * @param {Metric} metric
 */
export function figureText({ name, value, unit, labels }) {
  return [wordsOf(name), ...Object.values(labels).map(wordsOf), valueText(value, unit)].join(" ");
}

/**
 * Returns least, mean and latest of the values of a line; null if it has none.
 * @param {(number | null | undefined)[]} values
 */
export function summaryOf(values) {
  const known = /** @type {number[]} */ (values.filter((value) => value !== null && value !== undefined));
  if (!known.length) return null;
  const sum = known.reduce((total, value) => total + value, 0);
  return { least: known.reduce((one, other) => Math.min(one, other)), mean: sum / known.length, last: known[known.length - 1] };
}

/**
 * Returns the course of a figure: instants in seconds, and for each line its values at these. A value is
 * undefined where another line has one, and null where a run of this line has none, which cuts the line.
 * A run has `between` if it measures between two ends: then a direction is one line, whichever of the two measured it.
 * @param {any[]} runs
 * @param {string} name
 */
export function courseOf(runs, name) {
  const ordered = [...runs].sort((one, other) => one.starts - other.starts);
  const times = [...new Set(ordered.map(({ starts }) => starts))];
  const at = new Map(times.map((instant, index) => [instant, index]));
  const place = ({ starts }) => at.get(starts) ?? 0;
  /** @type {Map<string, { title: string, both: boolean, ways: Set<string>, values: (number | null | undefined)[] }>} */
  const lines = new Map();
  let unit = "";
  for (const run of ordered) {
    for (const metric of run.metrics) {
      if (metric.name !== name) continue;
      unit = metric.unit;
      const { title, both } = lineOf(run, metric);
      const line = lines.get(title) ?? { title, both, ways: new Set(), values: new Array(times.length) };
      lines.set(title, line);
      line.ways.add(run.way);
      line.values[place(run)] = metric.value;
    }
  }
  for (const run of ordered) {
    if (run.metrics.some((metric) => metric.name === name)) continue;
    for (const line of lines.values()) if (line.ways.has(run.way)) line.values[place(run)] ??= null;
  }
  const byTime = new Map(ordered.map((run) => [run.starts, run]));
  // There and back together hide the directions, so it waits until it is asked for.
  const shown = [...lines.values()].map(({ title, both, values }) => ({ title, values, isHidden: both && lines.size > 1 }));
  return { unit, times: times.map((instant) => instant / 1000), lines: shown, runs: times.map((instant) => byTime.get(instant)) };
}

const REVERSED = { forward: false, backward: true };

function lineOf({ between, way }, { name, labels }) {
  const { direction, ...others } = labels;
  const rest = Object.values(others).map(wordsOf);
  if (between && direction in REVERSED) {
    const [source, dest] = REVERSED[direction] ? [...between].reverse() : between;
    return { title: [`${source} → ${dest}`, ...rest].join(", "), both: false };
  }
  if (between && direction) return { title: [wordsOf(direction), ...rest].join(", "), both: true };
  const words = [way, ...Object.values(labels).map(wordsOf)].filter(Boolean).join(", ");
  return { title: words || wordsOf(name), both: false };
}
