// A form in the dialog of the actions, with what would happen beside it, and the call that it makes.

import { callOf } from "./calls.js";
import { element } from "./dom.js";
import { durationWords, momentWords } from "./durations.js";

/**
 * @typedef {import("./api.js").ApiError} ApiError
 * @typedef {import("./actions.js").Actions} Actions
 * @typedef {{ [name: string]: any }} Json
 */

// Time without typing after which the node is asked.
const PAUSE = 400;
const INSTANT = /^\d{4}-\d\d-\d\dT.*Z$/u;
// How the node's word for a field that is missing begins.
const MISSING = "is required";

/**
 * @typedef {object} Fields what is filled in
 * @property {HTMLElement} box
 * @property {() => Json} read throws an Error with what is wrong
 * @property {(document: Json) => void} write
 * @property {(errors: Json[]) => Json[]} fault shows what the node found wrong, and returns what has no field
 * @property {() => void} clear
 * @typedef {object} Manner how a form is used
 * @property {string} send the words of its button
 * @property {(document: Json) => import("./calls.js").Call | null} call what would be sent; null for nothing
 * @property {(document: Json) => Promise<Node[]>} preview what would happen
 * @property {import("./actions.js").Deed} deed what is said and offered once it was sent
 */

/** A form in the dialog of the actions, with what would happen beside it. */
export class PreviewForm {
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
   * @param {Fields} fields
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

/**
 * Lists what differs between two documents, by the names of their fields.
 * @param {Json} before
 * @param {Json} after
 */
export function changes(before, after) {
  const items = differences(before, after, []).map(([name, old, now]) => {
    return element("li", {}, element("b", {}, name), `: ${textOf(old)} → ${textOf(now)}`);
  });
  return element("ul", { class: "changes" }, items);
}

/** @param {unknown} value */
function textOf(value) {
  if (value === undefined) return "by default";
  if (typeof value !== "string") return JSON.stringify(value);
  if (value.startsWith("P")) return durationWords(value);
  return INSTANT.test(value) ? momentWords(value) : value;
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
