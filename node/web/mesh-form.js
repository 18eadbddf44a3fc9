// The form of a mesh file: pasted, checked, planned, and applied.

import { callOf, post } from "./calls.js";
import { element } from "./dom.js";
import { readable } from "./words.js";

/**
 * @typedef {import("./api.js").Api} Api
 * @typedef {import("./actions.js").Actions} Actions
 * @typedef {{ [name: string]: any }} Json
 */

const PAUSE = 600;
// As many tasks as one request creates, or cancels.
const AT_ONCE = 100;
const PREVIEWED = 6;
const LISTED = 8;
const TRIALS = "/v1/meshes/trials";
const EXAMPLE = `name = "lab"

[groups]
all = ["a", "b"]

[tests.rtt]
type = "rtt"

[schedules.often]
repeat = "PT5M"

[[measure]]
test = "rtt"
schedule = "often"
shape = "full-mesh"
members = "all"
`;

/** @param {string} text */
const fileOf = (text) => ({ text, format: text.trimStart().startsWith("{") ? "json" : "toml" });

/**
 * Shows the form of a mesh file.
 * @param {Api} api
 * @param {Actions} actions
 */
export function meshFile(api, actions) {
  const subject = { title: "Mesh file" };
  const form = new MeshForm(api, actions, subject);
  actions.show(subject, [form.box], { wide: true });
}

class MeshForm {
  #api;
  #actions;
  #subject;
  #text;
  #preview = element("div", { class: "preview", "aria-live": "polite" });
  #call = element("div", {});
  #send = element("button", { type: "submit", class: "confirm", disabled: true }, "Apply");
  /** @type {Json | null} */
  #trial = null;
  #asked = 0;
  #timer = 0;

  /**
   * @param {Api} api
   * @param {Actions} actions
   * @param {import("./actions.js").Subject} subject
   */
  constructor(api, actions, subject) {
    this.#api = api;
    this.#actions = actions;
    this.#subject = subject;
    this.#text = /** @type {HTMLTextAreaElement} */ (
      element("textarea", { id: "mesh-text", rows: 24, spellcheck: "false", placeholder: EXAMPLE, input: () => this.#changed() })
    );
    const file = /** @type {HTMLInputElement} */ (element("input", { id: "mesh-file", type: "file", accept: ".toml,.json" }));
    file.addEventListener("change", async () => {
      this.#text.value = (await file.files?.[0]?.text()) ?? "";
      this.#changed();
    });
    const leave = element("button", { type: "button", class: "leave", click: () => actions.close() }, "Leave it");
    this.box = element(
      "form",
      { class: "with-preview", novalidate: true, submit: (/** @type {Event} */ event) => this.#submit(event) },
      element(
        "div",
        {},
        element("div", { class: "field" }, element("label", { for: "mesh-text" }, "mesh file, in TOML or JSON"), this.#text),
        element("div", { class: "field" }, element("label", { for: "mesh-file" }, "or a file of this host"), file),
      ),
      element("section", { class: "beside", "aria-label": "What would happen" }, this.#preview, this.#call),
      element("p", { class: "actions" }, this.#send, leave),
    );
  }

  #changed() {
    this.#trial = null;
    this.#send.toggleAttribute("disabled", true);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ask(), PAUSE);
  }

  async #ask() {
    const asked = (this.#asked += 1);
    const body = fileOf(this.#text.value);
    if (!body.text.trim()) return this.#preview.replaceChildren();
    this.#call.replaceChildren(callOf(post(TRIALS, body)));
    this.#preview.setAttribute("aria-busy", "true");
    try {
      const trial = await this.#api.call("POST", TRIALS, body);
      if (asked !== this.#asked) return;
      this.#show(trial);
      await this.#plan(trial, asked);
    } catch (error) {
      if (asked === this.#asked) this.#fail(error);
    } finally {
      if (asked === this.#asked) this.#preview.removeAttribute("aria-busy");
    }
  }

  /** @param {Json} trial */
  #show(trial) {
    const stops = trial.findings.some((/** @type {Json} */ finding) => finding.stops);
    const count = trial.create.length + trial.edit.length + trial.end.length;
    this.#trial = stops || !count ? null : trial;
    this.#send.toggleAttribute("disabled", !this.#trial);
    this.#send.textContent = this.#trial ? `Apply to ${counted(count)}` : "Apply";
    this.#preview.replaceChildren(
      ...trial.findings.map(findingOf),
      ...(stops ? [] : [element("p", { class: "verdict" }, sentenceOf(trial)), changesOf(trial)]),
    );
  }

  // What the nodes say of one task of each entry stands for the others.
  /** @param {Json} trial @param {number} asked */
  async #plan(trial, asked) {
    const keys = this.#trial ? trial.previewed.slice(0, PREVIEWED) : [];
    const list = element("ul", {});
    if (keys.length) this.#preview.append(element("section", {}, element("h3", {}, "What the nodes say"), list));
    for (const key of keys) {
      const { document, follows } = trial.create.find((/** @type {Json} */ each) => each.key === key);
      const { idempotency_key: _, after: __, ...alone } = document;
      const plan = await this.#api.call("POST", "/v1/plans", { ...(follows ? alone : { ...alone, ...(document.after ? { after: document.after } : {}) }), runs: 3 });
      if (asked !== this.#asked) return;
      const words = follows ? `once ${follows} has run: ` : "";
      list.append(element("li", {}, element("b", {}, key), `: ${words}${readable(plan.sentence, Date.parse(plan.now))}`));
    }
  }

  /** @param {any} error */
  #fail(error) {
    this.#preview.replaceChildren(element("p", { class: "verdict failed" }, error.message));
  }

  /** @param {Event} event */
  #submit(event) {
    event.preventDefault();
    const trial = this.#trial;
    if (!trial) return;
    this.#asked += 1;
    /** @type {import("./actions.js").Deed} */
    const deed = {
      done: (done) => `Mesh ${trial.name}: ${outcomeOf(done)}`,
      follow: () => ({}),
      undo: (_, { created }) => ["take back", { ...this.#subject, call: post("/v1/tasks/changes", { change: "cancel", tasks: created.slice(0, 500) }) }],
    };
    const undoes = !trial.edit.length && !trial.end.length && trial.create.length <= 500;
    const all = () => applied(this.#api, trial, (words) => this.#preview.replaceChildren(element("p", { role: "status" }, words)));
    this.#actions.perform(undoes ? deed : { ...deed, undo: undefined }, this.#subject, all, (error) => this.#fail(error));
  }
}

/**
 * Ends, edits, then creates tasks: those that end must not occupy the time of new ones.
 * @param {Api} api
 * @param {Json} trial
 * @param {(words: string) => void} tell
 */
async function applied(api, trial, tell) {
  /** @type {{ created: string[], edited: number, ended: number, failed: string[] }} */
  const done = { created: [], edited: 0, ended: 0, failed: [] };
  for (const some of pieces(trial.end)) {
    const tasks = some.map(({ task }) => task);
    const { items } = await api.call("POST", "/v1/tasks/changes", { change: "cancel", tasks });
    for (const { problem } of items) problem ? done.failed.push(problem.detail) : (done.ended += 1);
    tell(`${done.ended} of ${trial.end.length} ended`);
  }
  for (const { task, patch } of trial.edit) {
    try {
      await api.call("PATCH", `/v1/tasks/${task}`, patch);
      done.edited += 1;
    } catch (error) {
      done.failed.push(error.message);
    }
    tell(`${done.edited} of ${trial.edit.length} edited`);
  }
  await create(api, trial, done, tell);
  return done;
}

// Tasks that others follow come first, because these name them by their ids.
/** @param {Api} api @param {Json} trial @param {{ created: string[], failed: string[] }} done @param {(words: string) => void} tell */
async function create(api, trial, done, tell) {
  /** @type {Map<string, string>} */
  const ids = new Map();
  for (const depth of new Set(trial.create.map((/** @type {Json} */ each) => each.depth))) {
    const level = trial.create.filter((/** @type {Json} */ each) => each.depth === depth);
    const [ready, lost] = [[], []].map((list) => /** @type {Json[]} */ (list));
    for (const each of level) (each.follows && !ids.has(each.follows) ? lost : ready).push(each);
    for (const { key, follows } of lost) done.failed.push(`${key}: ${follows}, which it follows, could not be created`);
    for (const some of pieces(ready)) {
      await createSome(api, some, ids, done);
      tell(`${done.created.length} of ${trial.create.length} created`);
    }
  }
}

/** @param {Api} api @param {Json[]} some @param {Map<string, string>} ids @param {{ created: string[], failed: string[] }} done */
async function createSome(api, some, ids, done) {
  const documents = some.map(({ document, follows }) => (follows ? { ...document, after: { ...document.after, task: ids.get(follows) } } : document));
  const { items } = await api.call("POST", "/v1/tasks", documents);
  for (const [index, { task, problem }] of items.entries()) {
    const { key } = some[index];
    if (problem) done.failed.push(`${key}: ${problem.detail}`);
    else {
      done.created.push(task);
      ids.set(key, task);
    }
  }
}

/** @param {Json[]} list */
function pieces(list) {
  return Array.from({ length: Math.ceil(list.length / AT_ONCE) }, (_, index) => list.slice(index * AT_ONCE, (index + 1) * AT_ONCE));
}

/** @param {Json} done */
function outcomeOf({ created, edited, ended, failed }) {
  const parts = [[created.length, "created"], [edited, "edited"], [ended, "ended"]].filter(([count]) => count);
  const why = failed.length ? `; ${failed.length} failed: ${failed[0]}` : "";
  return `${parts.map((part) => part.join(" ")).join(", ") || "nothing done"}${why}`;
}

/** @param {Json} finding */
function findingOf({ line, pointer, detail, remedy, stops }) {
  const place = line ? `line ${line}, ` : "";
  return element(
    "p",
    { class: `verdict ${stops ? "failed" : "missed"} finding` },
    element("span", {}, element("code", {}, `${place}${pointer || "/"}`), ` ${detail}${remedy ? `; ${remedy}` : ""}`),
  );
}

/** @param {Json} trial */
function sentenceOf({ name, create: made, edit, end, unchanged }) {
  if (!made.length && !edit.length && !end.length) return `Mesh ${name} is as the file says: ${counted(unchanged)}.`;
  return `Mesh ${name}: ${made.length} would be created, ${edit.length} edited, ${end.length} cancelled; ${unchanged} stay as they are.`;
}

/** @param {Json} trial */
function changesOf({ create: made, edit, end }) {
  const lines = [
    ...made.map((/** @type {Json} */ { key }) => ["create", key, ""]),
    ...edit.map((/** @type {Json} */ { key, differences }) => ["edit", key, differences.join("; ")]),
    ...end.map((/** @type {Json} */ { key, reason }) => ["cancel", key, reason]),
  ];
  const shown = lines.slice(0, LISTED).map(([verb, key, why]) => {
    return element("li", {}, `${verb} `, element("b", {}, key), why ? element("p", { class: "reason" }, readable(why, Date.now())) : null);
  });
  const more = lines.length - shown.length;
  return element("ul", {}, shown, more > 0 ? element("li", {}, `and ${more} more`) : null);
}

/** @param {number} count */
const counted = (count) => `${count} task${count === 1 ? "" : "s"}`;
