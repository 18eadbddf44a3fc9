// What the page knows: runs by id, tasks by id, nodes, and the node's clock.

import { stateOf } from "./words.js";

const HOUR = 3_600_000;
export const DAY = 24 * HOUR;

/** A run, a schedule entry, or an older note of one, in the page's own form. */
function entryOf(document) {
  return {
    id: document.run ?? document.id,
    task: document.task,
    test: document.test,
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

/** A span of reserved time, in the page's own form. */
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
  /** The ordinary tasks that have seats: of the pool task whose runs are shown, or of any. */
  parts = new Map();
  lists = { now: [], next: [], last: [] };
  nodes = [];
  #clockAhead = 0;
  clockKnown = false;

  /** The node's time, in milliseconds, by the last comparison with the browser's clock. */
  now() {
    return Date.now() + this.#clockAhead;
  }

  /** Takes the node's clock as read between two instants of the browser's. */
  setClock(instant, asked, answered) {
    this.#clockAhead = Date.parse(instant) - (asked + answered) / 2;
    this.clockKnown = true;
  }

  /** Takes runs as they are now. */
  merge(documents) {
    const entries = documents.map(entryOf);
    for (const entry of entries) this.entries.set(entry.id, entry);
    return entries;
  }

  /** Takes everything that starts in a span: what is not among it is no longer there. */
  replace(documents, from, to) {
    const present = new Set(this.merge(documents).map((entry) => entry.id));
    const oldest = this.now() - DAY - HOUR;
    for (const { id, starts } of this.entries.values()) {
      const vanished = starts >= from && starts < to && !present.has(id);
      if (vanished || starts < oldest) this.entries.delete(id);
    }
  }

  /** Takes all the reserved time that there is in the span the page knows of. */
  reserve(documents) {
    this.reserved = documents.map(reservedOf);
  }

  /** Reserved time that overlaps a span, in start order. */
  reservedBetween(from, to) {
    return this.reserved.filter(({ starts, ends }) => ends > from && starts < to);
  }

  /** Runs that overlap a span, in start order, of one task if it is given. */
  between(from, to, task) {
    const found = [...this.entries.values()].filter(
      (entry) => entry.ends > from && entry.starts < to && (!task || this.#isOf(entry, task)),
    );
    return found.sort((one, other) => one.starts - other.starts || (one.id < other.id ? -1 : 1));
  }

  #isOf(entry, task) {
    return entry.task === task || this.parts.get(entry.task)?.parent === task;
  }

  /** Runs that did not give a result in the last day, newest first. */
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

  /** The spec of a run's task, where the task is known. */
  specOf(entry) {
    return (this.tasks.get(entry.task) ?? this.parts.get(entry.task))?.test.spec;
  }
}
