// Times, durations, schedules and states in words. Pure: it does not access the page.

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

// kind determines colour and drawing: waiting (without a time), future, running, done, failed, missed, gone.
const STATES = {
  waiting: { word: "waiting", kind: "waiting", icon: "clock" },
  held: { word: "held", kind: "future", icon: "clock" },
  scheduled: { word: "scheduled", kind: "future", icon: "clock" },
  "set-aside": { word: "set aside", kind: "waiting", icon: "pause" },
  running: { word: "running", kind: "running", icon: "play" },
  merging: { word: "merging", kind: "running", icon: "play" },
  finished: { word: "finished", kind: "done", icon: "check" },
  failed: { word: "failed", kind: "failed", icon: "cross" },
  missed: { word: "missed", kind: "missed", icon: "alert" },
  unplaced: { word: "unplaced", kind: "missed", icon: "alert" },
  cancelled: { word: "cancelled", kind: "gone", icon: "dash" },
  displaced: { word: "displaced", kind: "gone", icon: "swap" },
  active: { word: "active", kind: "running", icon: "play" },
  paused: { word: "paused", kind: "gone", icon: "pause" },
  refused: { word: "refused", kind: "failed", icon: "cross" },
};

/** Returns whether a run in this state is over. */
export const isOver = (name) => ["done", "failed", "missed", "gone"].includes(stateOf(name).kind);

/** Returns how to show a state of a run or a task. */
export function stateOf(name) {
  return STATES[name] ?? { word: name, kind: "future", icon: "clock" };
}

const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const SHORT_TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const DATE = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short" });

/** The reader's time zone: "Europe/Berlin", or "UTC". */
export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

export const timeOf = (instant) => TIME.format(instant);
export const shortTimeOf = (instant) => SHORT_TIME.format(instant);
export const dateOf = (instant) => DATE.format(instant);
export const utcOf = (instant) => new Date(instant).toISOString().replace(/\.000Z$/u, "Z");

/** Formats local time, with the date if it is not today's. */
export function momentOf(instant, now) {
  return dateOf(instant) === dateOf(now) ? timeOf(instant) : `${dateOf(instant)}, ${timeOf(instant)}`;
}

/** @type {[number, string][]} */
const UNITS = [[DAY, "d"], [HOUR, "h"], [MINUTE, "min"], [SECOND, "s"]];

/** Formats milliseconds with at most two units: "4 min 12 s", "2 h 5 min", "0.4 s". */
export function spell(milliseconds) {
  const span = Math.abs(milliseconds);
  if (span > 0 && span < SECOND) return `${(span / SECOND).toFixed(1)} s`;
    let rest = Math.round(span / SECOND) * SECOND;
  const first = Math.max(0, UNITS.findIndex(([unit]) => rest >= unit));
  const words = [];
  for (const [unit, name] of UNITS.slice(rest ? first : UNITS.length - 1).slice(0, 2)) {
    const count = Math.floor(rest / unit);
    rest -= count * unit;
    if (count || !words.length) words.push(`${count} ${name}`);
  }
  return words.join(" ");
}

/** "in 4 min 12 s", "3 min 2 s ago", "now". */
export function distance(instant, now) {
  const span = instant - now;
  if (Math.abs(span) < SECOND) return "now";
  return span > 0 ? `in ${spell(Math.floor(span / SECOND) * SECOND)}` : `${spell(span)} ago`;
}

/** Formats an age with one unit, for lists: "just now", "3 min ago", "2 h ago". */
export function age(instant, now) {
  const span = now - instant;
  if (span < 0) return distance(instant, now);
  if (span < 5 * SECOND) return "just now";
  const [unit, name] = UNITS.find(([size]) => span >= size) ?? [SECOND, "s"];
  return `${Math.floor(span / unit)} ${name} ago`;
}

/** Parses an ISO 8601 duration of the API into milliseconds. */
export function parseDuration(text) {
  const match = /^P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?$/u.exec(text ?? "");
  if (!match) return null;
  const [weeks, days, hours, minutes, seconds] = match.slice(1).map((part) => Number(part ?? 0));
  return (weeks * 7 + days) * DAY + hours * HOUR + minutes * MINUTE + seconds * SECOND;
}

/**
 * Describes when a task runs: "every 5 min until …", "cron 0 3 * * * (Europe/Berlin)", "once", "after task 1f2e3d4c".
 * @param {any} schedule
 * @param {number} now
 * @param {any} after the task that it follows, if any
 */
export function scheduleWords(schedule, now, after = null) {
  const asked = after?.when ? ` when ${after.when}, at most ${after.per_hour} an hour` : "";
  if (after) return `after task ${after.task.slice(0, 8)}${asked}, within ${spell(parseDuration(after.within) ?? 0)}`;
  const start = schedule.start ? Date.parse(schedule.start) : null;
  const words = [];
  if (schedule.cron) words.push(`cron ${schedule.cron} (${schedule.timezone ?? "UTC"})`);
  else if (schedule.repeat) words.push(`every ${spell(parseDuration(schedule.repeat) ?? 0)}`);
  else return start === null ? "once, as soon as possible" : `once, at ${momentOf(start, now)}`;
  if (start !== null && start > now) words.push(`from ${momentOf(start, now)}`);
  return [...words, ...boundsOf(schedule, now)].join(", ");
}

function boundsOf(schedule, now) {
  const words = [];
  if (schedule.until) words.push(`until ${momentOf(Date.parse(schedule.until), now)}`);
  if (schedule.max_runs) words.push(`at most ${schedule.max_runs} runs`);
  if (schedule.displacement_budget) words.push(`may lose ${schedule.displacement_budget.replace("/", " of ")}`);
  if (schedule.slip_random && schedule.slip) {
    words.push(`at random within ${spell(parseDuration(schedule.slip) ?? 0)}`);
  }
  return words;
}

/** Tells the weight of a campaign, and its other ones: "weight 1, 5 at 0 20 * * * (UTC) for 10 h". */
export function weightWords({ weight, timed_weights: timed = [] }) {
  const at = (/** @type {any} */ { cron, timezone }) => `${cron} (${timezone ?? "UTC"})`;
  const others = timed.map((/** @type {any} */ it) => `${it.weight} at ${at(it)} for ${spell(parseDuration(it.duration) ?? 0)}`);
  return [`weight ${weight}`, ...others].join(", ");
}

/** Splits a headline of the API, "rtt  a → 192.0.2.7", into the test and the ends. */
export function partsOf(headline) {
  const [test, ends = ""] = headline.split("  ");
  return { test, ends };
}

const INSTANT = /\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)/gu;
const LENGTH = /(?<![\w:.-])P(?=\d|T\d)(?:\d+W)?(?:\d+D)?(?:T(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d+)?S)?)?(?![\w-])/gu;

/** Writes the instants and durations inside a sentence of the API as the rest of the page does. */
export function readable(sentence, now) {
  return sentence
    .replaceAll(INSTANT, (instant) => momentOf(Date.parse(instant), now))
    .replaceAll(LENGTH, (length) => spell(parseDuration(length) ?? 0));
}
