// What would happen if: a span that is marked on a timeline begins a form of a new task, and a planned run
// that is moved there the form of its task. Nothing is changed before the form is confirmed.

import { may, taskActions } from "./actions.js";
import { durationOf } from "./durations.js";
import { markedSpan, movedSpan } from "./timeline-layout.js";

export const WORDS =
  "What would happen? Shift and drag marks a span for a new task, or moves a planned run of a task that is led here; W does so where the chosen run is, or in the middle. Nothing is changed before you confirm it.";

/** What is said to those who may not ask. */
export const NOT_OFFERED =
  "What would happen if something was moved or added? To ask that needs a token with the role run, because it makes other nodes work; yours only reads.";

const AHEAD = new Set(["future", "waiting"]);
const SECOND = 1_000;

/** Asks in forms what would happen in a span of `picture`, for those who may create tasks. */
export class WhatIf {
  #context;
  #picture;

  constructor(context, picture) {
    this.#context = context;
    this.#picture = picture;
  }

  /** Returns whether the reader may ask: a plan is asked for with the token of those who create tasks. */
  get offered() {
    return may(this.#context.caller(), "run");
  }

  /** Begins a drag at a place on the canvas. */
  drag(event) {
    const { model } = this.#context;
    const picture = this.#picture;
    const at = picture.instantAt(event.offsetX);
    const run = ahead(picture.runAt(event));
    /** @type {{ from: number, to: number } | null} */
    let span = null;
    return {
      move(x) {
        const to = picture.instantAt(x);
        span = run ? movedSpan(run, to - at, picture.view, model.now()) : markedSpan(at, to, picture.view, model.now());
        picture.mark(span);
      },
      // The form waits for the click that ends the drag.
      end: () => {
        picture.mark(null);
        const asked = span;
        if (asked) setTimeout(() => this.#ask(asked, run));
      },
      cancel: () => picture.mark(null),
    };
  }

  /** Asks about the run that is chosen on the picture if it is planned, otherwise about the middle of the span. */
  here() {
    const run = ahead(this.#picture.chosenRun());
    if (run) return this.#ask({ from: run.starts, to: run.ends }, run);
    const { from, to } = this.#picture.view;
    return this.#ask({ from: Math.max((from + to) / 2, this.#context.model.now()), to: null }, null);
  }

  // A run of a task that cannot be edited here only says when and how long.
  async #ask({ from, to }, run) {
    const { actions } = this.#context;
    const task = run && (await this.#editable(run.task));
    const start = new Date(Math.ceil(from / SECOND) * SECOND).toISOString().replace(".000Z", "Z");
    if (task) return actions.open("edit", { task, start });
    const length = to === null ? null : durationOf(`${(to - from) / SECOND} s`);
    return actions.open("create", { title: "New task", start, length });
  }

  // The tasks of seats are edited by the task of their pool.
  async #editable(id) {
    const { api, caller } = this.#context;
    const task = await api.get(`/v1/tasks/${id}`).catch(() => null);
    if (task?.parent) return this.#editable(task.parent);
    return task && taskActions(task, caller()).includes("edit") ? task : null;
  }
}

const ahead = (run) => (run && AHEAD.has(run.kind) ? run : null);
