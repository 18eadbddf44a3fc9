// The forms that create a task, with its plan beside it, and that edit one.

import { callOf } from "./calls.js";
import { element } from "./dom.js";
import { durationWords } from "./durations.js";
import { patchOf } from "./patches.js";
import { planView } from "./plan-view.js";
import { SchemaFields } from "./schema-form.js";

/**
 * @typedef {import("./api.js").Api} Api
 * @typedef {import("./api.js").ApiError} ApiError
 * @typedef {import("./actions.js").Actions} Actions
 * @typedef {{ [name: string]: any }} Json
 */

// Time without typing after which the node is asked for a plan.
const PAUSE = 400;
const USUAL = "rtt";
const FIRST_OF_SPEC = ["source", "dest", "url", "name", "duration", "count", "participants"];
const FIRST_OF_TASK = ["priority", "campaign"];
const FIRST_OF_TIMES = ["start", "repeat"];
const NOT_OF_TASK = ["test", "schedule", "participants", "runs"];
const NAMED = "";
// How the node's word for a field that is missing begins.
const MISSING = "is required";

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
   * @param {{ fixed: boolean }} options `fixed`: the test and the nodes cannot be changed
   */
  constructor(known, document, { fixed }) {
    this.#known = known;
    const { schemas, suggestions, tests, pools } = known;
    const choices = [...tests.values()].map(({ name, title }) => element("option", { value: name }, `${name}: ${title}`));
    this.#test = /** @type {HTMLSelectElement} */ (element("select", { id: "task-test", disabled: fixed }, choices));
    const named = element("option", { value: NAMED }, "those named above");
    const options = pools.map((/** @type {string} */ name) => element("option", { value: name }, `some of the pool ${name}`));
    this.#pool = /** @type {HTMLSelectElement} */ (element("select", { id: "task-pool", disabled: fixed }, named, options));
    this.#times = new SchemaFields(schemaOf(schemas, "ScheduleDocument"), { defs: schemas, first: FIRST_OF_TIMES });
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
    this.#show(this.#test.value, spec);
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

/**
 * @typedef {object} Manner how a form is used
 * @property {string} send the words of its button
 * @property {(document: Json) => import("./calls.js").Call | null} call what would be sent; null for nothing
 * @property {(document: Json) => Promise<Node[]>} preview what would happen
 * @property {import("./actions.js").Deed} deed what is said and offered once it was sent
 */

/** A form of a task in the dialog of the actions, with what would happen beside it. */
class TaskForm {
  #actions;
  #subject;
  #fields;
  #manner;
  #preview = element("div", { class: "preview" });
  #call = element("div", {});
  #send;
  #asked = 0;
  #timer = 0;

  /**
   * @param {Actions} actions
   * @param {import("./actions.js").Subject} subject
   * @param {TaskFields} fields
   * @param {Manner} manner
   */
  constructor(actions, subject, fields, manner) {
    this.#actions = actions;
    this.#subject = subject;
    this.#fields = fields;
    this.#manner = manner;
    this.#send = element("button", { type: "submit", class: "confirm", disabled: true }, manner.send);
    const leave = element("button", { type: "button", class: "leave", click: () => actions.close() }, "Leave it");
    const beside = element("section", { class: "beside", "aria-label": "What would happen" }, this.#preview, this.#call);
    this.form = element(
      "form",
      { class: "with-preview", novalidate: true, submit: (/** @type {Event} */ event) => this.#submit(event) },
      element("div", { input: () => this.changed() }, fields.box),
      beside,
      element("p", { class: "actions" }, this.#send, leave),
    );
  }

  /** Asks soon for what would happen now. */
  changed() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ask(), this.#asked ? PAUSE : 0);
  }

  /** @param {Json} document */
  take(document) {
    this.#fields.write(document);
    this.changed();
  }

  async #ask() {
    const asked = (this.#asked += 1);
    const document = this.#read();
    if (!document) return;
    const call = this.#manner.call(document);
    this.#call.replaceChildren(...(call ? [callOf(call)] : []));
    this.#send.toggleAttribute("disabled", !call);
    this.#preview.setAttribute("aria-busy", "true");
    let content;
    try {
      content = await this.#manner.preview(document);
    } catch (error) {
      content = asked === this.#asked ? this.#refused(/** @type {ApiError} */ (error)) : [];
    }
    if (asked !== this.#asked) return;
    this.#preview.removeAttribute("aria-busy");
    this.#preview.replaceChildren(...content);
  }

  // What is wrong is shown at its field.
  #read() {
    this.#fields.clear();
    try {
      return this.#fields.read();
    } catch (error) {
      this.#preview.replaceChildren(element("p", { class: "hint" }, /** @type {Error} */ (error).message));
      this.#send.toggleAttribute("disabled", true);
      return null;
    }
  }

  /** @param {ApiError} error */
  #refused(error) {
    const errors = error.problem?.errors ?? [];
    if (!errors.length) return [element("p", { class: "verdict failed" }, error.message)];
    this.#send.toggleAttribute("disabled", true);
    const elsewhere = this.#fields.fault(errors);
    const missing = errors.filter(({ detail }) => detail.startsWith(MISSING)).map(({ pointer }) => pointer.split("/").at(-1));
    const lines = [
      missing.length ? `Still needed: ${missing.join(", ")}.` : "Something is wrong.",
      ...elsewhere.map(({ pointer, detail }) => `${pointer}: ${detail}`),
    ];
    return lines.map((line) => element("p", { class: "hint" }, line));
  }

  /** @param {Event} event */
  #submit(event) {
    event.preventDefault();
    const document = this.#read();
    const call = document && this.#manner.call(document);
    if (!call) return;
    this.#asked += 1;
    this.#actions.perform(this.#manner.deed, this.#subject, call, (error) => {
      this.#preview.replaceChildren(...this.#refused(error));
    });
  }
}

const START = { test: { type: USUAL, spec: {} } };

/**
 * Shows the form of a new task; `document` is what it begins with.
 * @param {Api} api
 * @param {Actions} actions
 * @param {Json} document
 */
export async function newTask(api, actions, document = START) {
  const subject = { title: "New task" };
  const known = await actions.loading(subject, described(api));
  if (!known) return;
  /** @type {Manner} */
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
  const fields = new TaskFields(known, document, { fixed: false });
  const form = new TaskForm(actions, subject, fields, manner);
  actions.show(subject, [form.form], { wide: true });
  form.changed();
}

/**
 * Shows the form of a task that there is.
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
  const patched = (/** @type {Json} */ document) => patchOf(before, document);
  let after = before;
  /** @type {Manner} */
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
      return [element("h3", {}, "Would be changed"), changes(before, document), element("p", { class: "hint" }, "Runs that are booked and do not fit any more are planned again.")];
    },
    deed: {
      done: () => "The task is changed.",
      undo: () => ["edit back", { ...subject, call: { method: "PATCH", path, body: patchOf(after, before) } }],
    },
  };
  const form = new TaskForm(actions, subject, fields, manner);
  actions.show(subject, [form.form], { wide: true });
  form.changed();
}

/**
 * Lists what differs between two documents, by the names of their fields.
 * @param {Json} before
 * @param {Json} after
 */
function changes(before, after) {
  const items = differences(before, after, []).map(([name, old, now]) => {
    return element("li", {}, element("b", {}, name), `: ${textOf(old)} → ${textOf(now)}`);
  });
  return element("ul", { class: "changes" }, items);
}

/** @param {unknown} value */
function textOf(value) {
  if (value === undefined) return "by default";
  return typeof value === "string" ? (value.startsWith("P") ? durationWords(value) : value) : JSON.stringify(value);
}

/**
 * @param {Json} before
 * @param {Json} after
 * @param {string[]} place
 * @returns {[string, unknown, unknown][]}
 */
function differences(before, after, place) {
  const names = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])];
  return names.flatMap((name) => {
    const [old, now] = [before?.[name], after?.[name]];
    if (JSON.stringify(old) === JSON.stringify(now)) return [];
    const nested = [old, now].every((value) => value === undefined || (typeof value === "object" && value !== null && !Array.isArray(value)));
    if (nested) return differences(old, now, [...place, name]);
    const shown = [...place, name].filter((word) => !["test", "spec", "schedule"].includes(word)).join(" ");
    return [/** @type {[string, unknown, unknown]} */ ([shown || name, old, now])];
  });
}
