// The forms that create a task, with its plan beside it, and that edit one.

import { element } from "./dom.js";
import { patchOf } from "./patches.js";
import { planView } from "./plan-view.js";
import { changes, PreviewForm } from "./preview-form.js";
import { SchemaFields } from "./schema-form.js";

/**
 * @typedef {import("./api.js").Api} Api
 * @typedef {import("./actions.js").Actions} Actions
 * @typedef {{ [name: string]: any }} Json
 */

const USUAL = "rtt";
const FIRST_OF_SPEC = ["source", "dest", "url", "name", "duration", "count", "participants"];
const FIRST_OF_TASK = ["priority", "campaign"];
const FIRST_OF_TIMES = ["start", "repeat"];
const NOT_OF_TASK = ["test", "schedule", "participants", "runs"];
const NAMED = "";
// What changes where the runs of a task lie.
const REPLANNED = ["test", "tools", "schedule"];

/**
 * What forms of tasks are made from, as the node describes it.
 * @param {Api} api
 */
async function described(api) {
  const [openapi, tests, nodes, campaigns, pools] = await Promise.all(
    ["/v1/openapi.json", "/v1/tests", "/v1/nodes", "/v1/campaigns?limit=500", "/v1/pools?limit=500"].map((path) => api.get(path)),
  );
  const names = (/** @type {Json} */ { items }) => items.map((/** @type {Json} */ { name }) => name);
  return {
    schemas: openapi.components.schemas,
    tests: new Map(tests.items.map((/** @type {Json} */ test) => [test.name, test])),
    pools: names(pools),
    suggestions: { host: names(nodes), campaign: names(campaigns), pool: names(pools) },
  };
}

/** @param {Json} schemas @param {string} name */
const schemaOf = (schemas, name) => schemas[`${name}-Input`] ?? schemas[name];

/** The fields of a task document: its test, its times, and the rest. */
class TaskFields {
  #known;
  #test;
  #pool;
  #length;
  /** @type {SchemaFields} */
  #spec;
  /** @type {SchemaFields | null} */
  #seats = null;
  #times;
  #rest;
  #specBox = element("div", {});
  #seatsBox = element("div", {});

  /**
   * @param {Awaited<ReturnType<typeof described>>} known
   * @param {Json} document
   * @param {{ fixed: boolean, length?: string | null }} options `fixed`: the test and the nodes cannot be changed;
   *   `length`: the duration with which tests that have one begin
   */
  constructor(known, document, { fixed, length = null }) {
    this.#known = known;
    this.#length = length;
    const { schemas, suggestions, tests, pools } = known;
    const choices = [...tests.values()].map(({ name, title }) => element("option", { value: name }, `${name}: ${title}`));
    this.#test = /** @type {HTMLSelectElement} */ (element("select", { id: "task-test", disabled: fixed }, choices));
    const named = element("option", { value: NAMED }, "those named above");
    const options = pools.map((/** @type {string} */ name) => element("option", { value: name }, `some of the pool ${name}`));
    this.#pool = /** @type {HTMLSelectElement} */ (element("select", { id: "task-pool", disabled: fixed }, named, options));
    this.#times = new SchemaFields(schemaOf(schemas, "ScheduleDocument"), { defs: schemas, first: FIRST_OF_TIMES, without: fixed ? ["samples"] : [] });
    const without = fixed ? [...NOT_OF_TASK, "contexts"] : NOT_OF_TASK;
    this.#rest = new SchemaFields(schemaOf(schemas, "TaskDocument"), { defs: schemas, suggestions, first: FIRST_OF_TASK, without });
    this.#spec = this.#specOf(document.test?.type ?? USUAL);
    const nodes = pools.length ? element("div", { class: "field" }, element("label", { for: "task-pool" }, "nodes"), this.#pool) : null;
    this.box = element(
      "div",
      { class: "task-fields" },
      element("fieldset", {}, element("legend", {}, "What"), element("div", { class: "field" }, element("label", { for: "task-test" }, "test"), this.#test), this.#specBox, nodes, this.#seatsBox),
      element("fieldset", {}, element("legend", {}, "When"), this.#times.box),
      element("fieldset", {}, element("legend", {}, "For whom, and how"), this.#rest.box),
    );
    this.write(document);
    this.#test.addEventListener("change", () => this.#switch());
    this.#pool.addEventListener("change", () => this.#seat(this.#pool.value, {}));
  }

  /** @param {string} name */
  #specOf(name) {
    const { tests, suggestions } = this.#known;
    const schema = tests.get(name)?.spec ?? { properties: {} };
    return new SchemaFields(schema, { suggestions, first: FIRST_OF_SPEC });
  }

  // What both tests have stays.
  #switch() {
    let spec = {};
    try {
      spec = this.#spec.read();
    } catch {
      // What is wrong in one test is not of interest in another.
    }
    const lasts = this.#length && "duration" in (this.#known.tests.get(this.#test.value)?.spec.properties ?? {});
    this.#show(this.#test.value, { ...(lasts ? { duration: this.#length } : {}), ...spec });
  }

  /** @param {string} name @param {Json} spec */
  #show(name, spec) {
    this.#spec = this.#specOf(name);
    this.#spec.write(spec);
    this.#specBox.replaceChildren(this.#spec.box);
  }

  /** @param {string} pool @param {Json} request */
  #seat(pool, request) {
    const { schemas } = this.#known;
    this.#seats = pool ? new SchemaFields(schemaOf(schemas, "SeatRequest"), { defs: schemas, preset: { pool }, first: ["k"] }) : null;
    this.#seats?.write(request);
    this.#seatsBox.replaceChildren(...(this.#seats ? [this.#seats.box] : []));
  }

  /** @returns {Json} */
  read() {
    const spec = this.#spec.read();
    const schedule = this.#times.read();
    return {
      test: { type: this.#test.value, spec },
      ...(Object.keys(schedule).length ? { schedule } : {}),
      ...(this.#seats ? { participants: this.#seats.read() } : {}),
      ...this.#rest.read(),
    };
  }

  /** @param {Json} document */
  write(document) {
    this.#test.value = document.test?.type ?? USUAL;
    this.#show(this.#test.value, document.test?.spec ?? {});
    this.#times.write(document.schedule ?? {});
    this.#rest.write(document);
    const request = Array.isArray(document.participants) ? null : document.participants;
    this.#pool.value = request?.pool ?? NAMED;
    this.#seat(this.#pool.value, request ?? {});
  }

  /**
   * Shows what the node found wrong; returns what has no field.
   * @param {Json[]} errors
   */
  fault(errors) {
    return errors.filter(({ pointer, detail }) => {
      const [first, second, ...rest] = pointer.split("/").slice(1);
      if (first === "test" && second === "spec") return !this.#spec.fault(rest, detail);
      if (first === "schedule") return !this.#times.fault([second, ...rest], detail);
      if (first === "participants" && this.#seats) return !this.#seats.fault([second, ...rest], detail);
      return !this.#rest.fault([first, second, ...rest], detail);
    });
  }

  clear() {
    for (const fields of [this.#spec, this.#times, this.#rest, this.#seats]) fields?.clear();
  }
}

const START = { test: { type: USUAL, spec: {} } };

/**
 * Shows the form of a new task; the subject may say when it begins and how long it lasts.
 * @param {Api} api
 * @param {Actions} actions
 * @param {import("./actions.js").Subject} subject
 */
export async function newTask(api, actions, subject = { title: "New task" }) {
  const known = await actions.loading(subject, described(api));
  if (!known) return;
  /** @type {import("./preview-form.js").Manner} */
  const manner = {
    send: "Create this task",
    call: (posted) => ({ method: "POST", path: "/v1/tasks", body: posted }),
    preview: async (posted) => {
      const plan = await api.call("POST", "/v1/plans", posted);
      return planView(plan, (alternative) => form.take(alternative.document));
    },
    deed: {
      done: (task) => `Task ${task.id.slice(0, 8)} was created: ${task.headline}.`,
      follow: (task) => ({ task: task.id }),
      undo: (_, task) => ["cancel", { task }],
    },
  };
  const { start, length } = subject;
  const fields = new TaskFields(known, { ...START, schedule: start ? { start } : {} }, { fixed: false, length });
  const form = new PreviewForm(actions, subject, fields, manner);
  actions.show(subject, [form.form], { wide: true });
  form.changed();
}

/**
 * What a changed task would find. The time of its booked runs counts as free, except where nodes of a pool are chosen.
 * @param {Api} api
 * @param {Json} task
 * @param {Json} document
 * @param {(alternative: Json) => void} take
 */
async function planBeside(api, task, document, take) {
  const words = task.pool ? "The runs that it has booked now count as taken." : "As if the runs that it has booked now were freed.";
  const head = [element("h3", {}, "Its plan"), element("p", { class: "hint" }, words)];
  const asked = task.pool ? document : { ...document, instead_of: task.id };
  try {
    return element("section", {}, head, planView(await api.call("POST", "/v1/plans", asked), take));
  } catch (error) {
    return element("section", {}, head, element("p", { class: "verdict failed" }, /** @type {Error} */ (error).message));
  }
}

/**
 * Shows the form of a task that there is; the subject may say when it shall begin instead.
 * @param {Api} api
 * @param {Actions} actions
 * @param {import("./actions.js").Subject} subject
 */
export async function editTask(api, actions, subject) {
  const path = `/v1/tasks/${subject.task.id}`;
  const loaded = await actions.loading(subject, Promise.all([described(api), api.get(path)]));
  if (!loaded) return;
  const [known, task] = loaded;
  const fields = new TaskFields(known, { ...task, participants: task.pool ?? [] }, { fixed: true });
  const before = fields.read();
  const { start } = subject;
  if (start) fields.write({ ...before, schedule: { ...before.schedule, start } });
  const patched = (/** @type {Json} */ document) => patchOf(before, document);
  let after = before;
  /** @type {import("./preview-form.js").Manner} */
  const manner = {
    send: "Change this task",
    call: (document) => {
      const patch = patched(document);
      after = document;
      return Object.keys(patch).length ? { method: "PATCH", path, body: { ...patch, revision: task.revision } } : null;
    },
    preview: async (document) => {
      const patch = patched(document);
      if (!Object.keys(patch).length) return [element("p", { class: "hint" }, "Nothing is changed yet.")];
      await api.call("PATCH", `${path}?dry_run=true`, patch);
      const moves = REPLANNED.some((name) => name in patch);
      const plan = moves ? [await planBeside(api, task, document, (alternative) => form.take(alternative.document))] : [];
      return [element("h3", {}, "Would be changed"), changes(before, document), element("p", { class: "hint" }, "Runs that are booked and do not fit any more are planned again."), ...plan];
    },
    deed: {
      done: () => "The task is changed.",
      undo: () => ["edit back", { ...subject, call: { method: "PATCH", path, body: patchOf(after, before) } }],
    },
  };
  const form = new PreviewForm(actions, subject, fields, manner);
  actions.show(subject, [form.form], { wide: true });
  form.changed();
}
