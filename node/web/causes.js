// Groups runs without a result by their cause: the reason without what differs from run to run. Pure.

const UUID = /\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/gu;
const INSTANT = /\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)/gu;
const LENGTH = /\bP(?:\d+D)?(?:T[\dHMS.]+)?(?![\w-])/gu;
const FIGURE = /(?<![\w.:-])\d+(?:\.\d+)?(?![\w.:-])/gu;

/** Returns a reason without its times, lengths, ids and figures. */
export function causeOf(reason) {
  return reason.replaceAll(UUID, "…").replaceAll(INSTANT, "…").replaceAll(LENGTH, "…").replaceAll(FIGURE, "…");
}

/** Returns the causes of runs, the most frequent first, each with its runs, newest first. */
export function byCause(entries) {
  const groups = new Map();
  for (const entry of [...entries].sort((one, other) => other.starts - one.starts)) {
    const cause = causeOf(entry.reason ?? "no reason known");
    const key = `${entry.state} ${entry.outcome?.judgement ?? ""} ${cause}`;
    if (!groups.has(key)) groups.set(key, { key, cause, entries: [] });
    groups.get(key).entries.push(entry);
  }
  return [...groups.values()].sort((one, other) => other.entries.length - one.entries.length);
}
