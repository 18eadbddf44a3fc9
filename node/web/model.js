// The page's data: runs by id, tasks by id, nodes, and the node's clock.

import { stateOf } from "./words.js";

const HOUR = 3_600_000;
export const DAY = 24 * HOUR;

/** Converts a run or a schedule entry into the page's form. */
function entryOf(document) {
  return {
    id: document.run ?? document.id,
    task: document.task,
    test: document.test,
    headline: document.headline,
    state: document.state,
    kind: stateOf(document.state).kind,
    lane: document.scheduling_class,
    priority: document.priority,
    starts: Date.parse(document.starts_at),
    ends: Date.parse(document.ends_at),
    started: document.started_at ?? null,
    participants: document.participants,
    reason: document.reason,
    summary: document.summary,
    verdict: document.verdict,
    doubts: document.verdict_reasons,
  };
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
    const entries = documents.map(entryOf);
    for (const entry of entries) this.entries.set(entry.id, entry);
    return entries;
  }

  /** Replaces all runs that start in a span: runs that are not among the documents are removed. */
  replace(documents, from, to) {
    const present = new Set(this.merge(documents).map((entry) => entry.id));
    const oldest = this.now() - DAY - HOUR;
    for (const { id, starts } of this.entries.values()) {
      const vanished = starts >= from && starts < to && !present.has(id);
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
    const bad = this.between(now - DAY, now + HOUR).filter(
      ({ kind, starts }) => (kind === "failed" || kind === "missed") && starts <= now,
    );
    return bad.reverse();
  }

  counts() {
    const now = this.now();
    const counts = { running: 0, due: 0, finished: 0, failed: 0, missed: 0 };
    for (const { kind, starts, ends } of this.entries.values()) {
      const past = ends > now - DAY && starts <= now;
      if (kind === "running") counts.running += 1;
      else if (kind === "future" && starts >= now && starts < now + HOUR) counts.due += 1;
      else if (kind === "done" && past) counts.finished += 1;
      else if (kind === "failed" && past) counts.failed += 1;
      else if (kind === "missed" && past) counts.missed += 1;
    }
    return counts;
  }
}
