// The page's data: runs by id, tasks by id, nodes, and the node's clock.

import { BAD_RESULTS, isTrouble, LOOKS } from "./outcomes.js";
import { stateOf } from "./words.js";

const HOUR = 3_600_000;
export const DAY = 24 * HOUR;

// Maximum number of runs of a lane that are fetched and drawn one by one.
const SINGLE_AT_MOST = 300;

const AHEAD = new Set(["future", "waiting"]);

const HAS = {
  now: ({ kind }) => kind === "running",
  next: ({ kind }) => AHEAD.has(kind),
  last: ({ kind, starts }, now) => kind !== "running" && !AHEAD.has(kind) && starts < now + 1000,
};

function add(sums, counts) {
  for (const [name, count] of Object.entries(counts)) sums[name] = (sums[name] ?? 0) + count;
}

/** Converts numbers of runs by state, and of those that are over by judgement, into numbers by kind. */
function countsOf(runs, judgements) {
  const counts = { done: 0, running: 0, future: 0, waiting: 0, gone: 0, missed: 0, failed: 0 };
  for (const [state, count] of Object.entries(runs)) counts[stateOf(state).kind] += count;
  for (const word of BAD_RESULTS) {
    counts.done -= judgements[word] ?? 0;
    counts[LOOKS[word].kind] += judgements[word] ?? 0;
  }
  return counts;
}

/** Returns the kind of a run: that of its state, unless it has a bad result. */
function kindOf({ state, outcome }) {
  const { kind } = stateOf(state);
  return kind === "done" && outcome && isTrouble({ kind, outcome }) ? LOOKS[outcome.judgement].kind : kind;
}

/** Returns what an event tells of a run: its state, and the judgement of one that is over. */
export function judgedAs(state, judgement) {
  const outcome = judgement ? { judgement } : null;
  return { state, outcome, kind: kindOf({ state, outcome }) };
}

/** Converts a run or a schedule entry into the page's form. */
function entryOf(document) {
  return {
    id: document.run ?? document.id,
    task: document.task,
    test: document.test,
    headline: document.headline,
    state: document.state,
    kind: kindOf(document),
    outcome: document.outcome ?? null,
    lane: document.scheduling_class,
    priority: document.priority,
    starts: Date.parse(document.starts_at),
    ends: Date.parse(document.ends_at),
    participants: document.participants,
    reason: document.reason ?? document.outcome?.reason ?? null,
    summary: document.summary,
  };
}

/** Converts a run for the lists, without keeping it. */
export function listEntryOf(document) {
  return { ...entryOf(document), started: document.started_at ?? null, followedBy: document.followed_by ?? [], ...verdictOf(document, {}) };
}

function verdictOf(document, kept) {
  return {
    verdict: document.verdict ?? kept.verdict ?? null,
    doubts: document.verdict_reasons ?? kept.doubts ?? [],
    tried: document.attempts ? document.attempts.filter(({ attempt }) => attempt < document.attempt) : (kept.tried ?? []),
  };
}

const CAME_TO_NOTHING = ["failed", "missed"];

/** Returns the ids of runs of the same slot for which another attempt stands, as a run tells: itself, or those before it. */
function repeatedOf({ id, state, attempt, attempts = [] }) {
  const isFollowed = attempts.some((each) => each.attempt > attempt && each.state !== "cancelled" && each.state !== "displaced");
  if (CAME_TO_NOTHING.includes(state) && isFollowed) return [id];
  return attempts.filter((each) => each.attempt < attempt && CAME_TO_NOTHING.includes(each.state)).map(({ run }) => run);
}

/** Converts a span of reserved time into the page's form. */
function reservedOf(document) {
  return {
    id: document.reservation,
    kind: document.kind,
    name: document.name,
    owner: document.owner,
    starts: Date.parse(document.starts_at),
    ends: Date.parse(document.ends_at),
  };
}

export class Model {
  entries = new Map();
  reserved = [];
  tasks = new Map();
  /** The tasks of seats: of the pool task whose runs are shown, or of any. */
  parts = new Map();
  lists = { now: [], next: [], last: [] };
  nodes = [];
  /** The lanes that have too many runs for one by one: their pieces of time with counts. */
  dense = new Map();
  #laneCounts = {};
  #sums = {};
  #judged = {};
  #clockAhead = 0;
  clockKnown = false;

  /** Returns the node's time in milliseconds, by the last comparison with the browser's clock. */
  now() {
    return Date.now() + this.#clockAhead;
  }

  /** Sets the node's clock, as read between two instants of the browser's clock. */
  setClock(instant, sent, received) {
    this.#clockAhead = Date.parse(instant) - (sent + received) / 2;
    this.clockKnown = true;
  }

  /** Adds runs, or updates them. */
  merge(documents) {
    const entries = documents.map((document) => {
      const known = this.entries.get(document.run ?? document.id);
      // The schedule has no verdicts.
      const kept = document.run && known?.state === document.state ? known : {};
      return { ...entryOf(document), started: document.started_at ?? kept.started ?? null, ...verdictOf(document, kept) };
    });
    for (const entry of entries) this.entries.set(entry.id, entry);
    for (const id of documents.flatMap(repeatedOf)) this.entries.delete(id);
    return entries;
  }

  /** Returns the runs of a list, of one task if it is given: what runs, what is next, what is over. */
  listed(name, task) {
    const now = this.now();
    const has = HAS[name];
    const all = [...this.entries.values()].filter((entry) => has(entry, now) && (!task || this.#isOf(entry, task)));
    all.sort((one, other) => one.starts - other.starts || (one.id < other.id ? -1 : 1));
    return name === "last" ? all.reverse() : all;
  }

  /** Counts a run of a task in its new state, and one that is over by its judgement. */
  count(task, before, state, judgement) {
    const known = this.tasks.get(task);
    if (!known || before === state) return;
    const runs = { ...known.runs, [state]: (known.runs[state] ?? 0) + 1 };
    if (runs[before]) runs[before] -= 1;
    const judgements = { ...known.judgements };
    if (judgement) judgements[judgement] = (judgements[judgement] ?? 0) + 1;
    this.tasks.set(task, { ...known, runs, judgements });
  }

  /** Counts a run that was known in its new state, until the numbers are asked for again. */
  shift(before, state) {
    const now = this.now();
    if (before.state === state || before.starts < now - DAY || before.starts >= now + HOUR) return;
    if (this.#sums[before.state]) this.#sums[before.state] -= 1;
    this.#sums[state] = (this.#sums[state] ?? 0) + 1;
  }

  /** Takes the number of runs of the last day and the next hour. */
  sum(buckets) {
    this.#sums = {};
    this.#judged = {};
    for (const { runs, judgements } of buckets) {
      add(this.#sums, runs);
      add(this.#judged, judgements);
    }
  }

  /** Takes the number of runs of each lane in the span shown, and returns the crowded lanes. */
  takeLanes(buckets) {
    this.#laneCounts = {};
    for (const { scheduling_class: lane, runs } of buckets) {
      const total = Object.values(runs).reduce((sum, count) => sum + count, 0);
      this.#laneCounts[lane] = (this.#laneCounts[lane] ?? 0) + total;
    }
    const dense = Object.keys(this.#laneCounts).filter((lane) => this.#laneCounts[lane] > SINGLE_AT_MOST);
    for (const lane of this.dense.keys()) if (!dense.includes(lane)) this.dense.delete(lane);
    return dense;
  }

  /** Returns the number of runs of a crowded lane in the span shown. */
  laneCount(lane) {
    return this.#laneCounts[lane] ?? 0;
  }

  /** Replaces the pieces of crowded lanes. */
  takePieces(buckets, length) {
    this.dense.clear();
    for (const { scheduling_class: lane, starts_at: starts, runs, judgements, busy } of buckets) {
      const from = Date.parse(starts);
      if (!this.dense.has(lane)) this.dense.set(lane, []);
      this.dense.get(lane).push({ from, to: from + length, counts: countsOf(runs, judgements), busy });
    }
  }

  /** Replaces all runs of lanes that start in a span: runs that are not among the documents are removed. */
  replace(documents, from, to, lanes) {
    const present = new Set(this.merge(documents).map((entry) => entry.id));
    const oldest = this.now() - DAY - HOUR;
    for (const { id, starts, lane } of this.entries.values()) {
      const vanished = starts >= from && starts < to && lanes.includes(lane) && !present.has(id);
      if (vanished || starts < oldest) this.entries.delete(id);
    }
  }

  /** Replaces the reserved time. */
  reserve(documents) {
    this.reserved = documents.map(reservedOf);
  }

  /** Returns the reserved time that overlaps a span, sorted by start. */
  reservedBetween(from, to) {
    return this.reserved.filter(({ starts, ends }) => ends > from && starts < to);
  }

  /** Returns the runs that overlap a span, sorted by start, of one task if it is given. */
  between(from, to, task) {
    const entries = [...this.entries.values()].filter(
      (entry) => entry.ends > from && entry.starts < to && (!task || this.#isOf(entry, task)),
    );
    return entries.sort((one, other) => one.starts - other.starts || (one.id < other.id ? -1 : 1));
  }

  #isOf(entry, task) {
    return entry.task === task || this.parts.get(entry.task)?.parent === task;
  }

  /** Returns the runs without a result in the last day, newest first. */
  failures() {
    const now = this.now();
    const bad = this.between(now - DAY, now + HOUR).filter((entry) => isTrouble(entry) && entry.kind !== "gone" && entry.starts <= now);
    return bad.reverse();
  }

  counts() {
    const by = countsOf(this.#sums, this.#judged);
    const running = this.listed("now").length || by.running;
    return { running, due: by.future + by.waiting, finished: by.done, failed: by.failed, missed: by.missed };
  }
}
