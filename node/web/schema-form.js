// Fields of a form made from a JSON Schema: one for each property, with its description and bounds.

import { element } from "./dom.js";
import { durationOf, durationWords, momentFrom, momentWords } from "./durations.js";
import { readable } from "./words.js";

/**
 * @typedef {{ [name: string]: any }} Json
 * @typedef {object} Field a property with its input
 * @property {HTMLElement} box what is shown
 * @property {() => unknown} read returns the value, undefined for none; throws an Error with what is wrong
 * @property {(value: any) => void} write sets the value; undefined or null empties it
 * @property {(pointer: string[], detail: string) => boolean} fault shows what is wrong, and returns whether it found where
 * @property {() => void} clear removes what was shown to be wrong
 */

let count = 0;
const nextId = () => `field-${(count += 1)}`;

/**
 * Returns a schema without reference and without null: what a field holds if it holds something.
 * @param {Json} schema
 * @param {Json} defs
 * @returns {Json}
 */
export function resolved(schema, defs) {
  if (schema.$ref) {
    const { $ref, ...rest } = schema;
    return resolved({ ...defs[$ref.split("/").at(-1)], ...rest }, defs);
  }
  const options = (schema.anyOf ?? schema.oneOf)?.filter((/** @type {Json} */ option) => option.type !== "null");
  if (options?.length === 1) {
    const { anyOf: _, oneOf: __, ...rest } = schema;
    return resolved({ ...options[0], ...rest, optional: true }, defs);
  }
  if (options?.length && options.every((/** @type {Json} */ option) => option.enum)) {
    const { anyOf: _, oneOf: __, ...rest } = schema;
    return { ...rest, enum: options.flatMap((/** @type {Json} */ option) => option.enum) };
  }
  return schema;
}

/**
 * The fields of an object. `suggestions` are known values by the name of a property, `preset` are
 * values that are not shown, `first` names those that are not folded away, `without` those left out.
 */
export class SchemaFields {
  /** @type {Map<string, Field>} */
  #fields = new Map();
  #preset;

  /**
   * @param {Json} schema
   * @param {{ defs?: Json, suggestions?: Record<string, string[]>, preset?: Json, first?: string[], without?: string[] }} options
   */
  constructor(schema, { defs = schema.$defs ?? {}, suggestions = {}, preset = {}, first = [], without = [] } = {}) {
    this.#preset = preset;
    const required = new Set(schema.required ?? []);
    const names = Object.keys(schema.properties ?? {}).filter((name) => !without.includes(name) && !(name in preset));
    const [open, folded] = [[], []].map((list) => /** @type {HTMLElement[]} */ (list));
    for (const name of names) {
      const own = resolved(schema.properties[name], defs);
      const field = fieldOf(name, own, { defs, suggestions, required: required.has(name) });
      this.#fields.set(name, field);
      (first.includes(name) || required.has(name) ? open : folded).push(field.box);
    }
    const rest = folded.length ? element("details", { class: "more-fields" }, element("summary", {}, `${open.length ? "More" : "Fields"} (${folded.length})`), element("div", { class: "fields" }, folded)) : null;
    this.box = element("div", {}, element("div", { class: "fields" }, open), rest);
  }

  /** @returns {Json} */
  read() {
    /** @type {Json} */
    const document = { ...this.#preset };
    for (const [name, field] of this.#fields) {
      const value = field.read();
      if (value !== undefined) document[name] = value;
    }
    return document;
  }

  /** @param {Json} document */
  write(document) {
    for (const [name, field] of this.#fields) field.write(document?.[name]);
    const folded = this.box.querySelector("details");
    if (folded && [...this.#fields].some(([name, { box }]) => folded.contains(box) && given(document?.[name]))) folded.open = true;
  }

  /**
   * Shows what is wrong at a pointer; returns whether there is a field for it.
   * @param {string[]} pointer
   * @param {string} detail
   */
  fault([name, ...rest], detail) {
    const field = this.#fields.get(name);
    if (!field?.fault(rest, detail)) return false;
    for (let box = field.box.closest("details"); box; box = box.parentElement?.closest("details") ?? null) box.open = true;
    return true;
  }

  clear() {
    for (const field of this.#fields.values()) field.clear();
  }
}

/** @param {any} value */
const given = (value) => value !== undefined && value !== null && JSON.stringify(value) !== "{}" && JSON.stringify(value) !== "[]";

/** @typedef {{ defs: Json, suggestions: Record<string, string[]>, required: boolean }} Context */

/**
 * @param {string} name
 * @param {Json} schema
 * @param {Context} context
 * @returns {Field}
 */
function fieldOf(name, schema, context) {
  if (schema.properties) return groupOf(name, schema, context);
  const kind = kindOf(schema);
  const id = nextId();
  const hint = element("small", { id: `${id}-hint`, class: "hint" }, described(schema));
  const wrong = element("small", { id: `${id}-wrong`, class: "wrong", role: "alert", hidden: true });
  const ids = `${id}-wrong${schema.description ? ` ${id}-hint` : ""}`;
  const input = kind.make(schema, { id, name, "aria-describedby": ids, required: context.required });
  const known = context.suggestions[name] ?? (isHost(schema) ? context.suggestions.host : undefined);
  const list = known?.length && input instanceof HTMLInputElement ? datalist(input, known) : null;
  const label = element("label", { for: id }, words(name), context.required ? element("span", { class: "needed" }, " needed") : null);
  const box = element("div", { class: `field ${kind.name}` }, label, input, list, wrong, schema.description ? hint : null);
  let touched = false;
  input.addEventListener("input", () => (touched = true));
  const show = (/** @type {string} */ detail) => {
    wrong.hidden = !detail;
    wrong.textContent = readable(detail, Date.now());
    if (detail) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
  };
  return {
    box,
    read: () => {
      try {
        const value = kind.read(input, schema);
        return isDefault(value, schema) && !context.required ? undefined : value;
      } catch (error) {
        show(/** @type {Error} */ (error).message);
        throw error;
      }
    },
    write: (value) => kind.write(input, value ?? undefined, schema),
    fault: (_, detail) => {
      // What was not reached yet is missing, not wrong.
      if (input.value !== "" || touched) show(detail);
      return true;
    },
    clear: () => show(""),
  };
}

/**
 * A group of fields for a property that is an object with properties of its own.
 * @param {string} name
 * @param {Json} schema
 * @param {Context} context
 * @returns {Field}
 */
function groupOf(name, schema, { defs, suggestions }) {
  const fields = new SchemaFields(schema, { defs, suggestions });
  const hint = schema.description ? element("small", { class: "hint" }, described(schema)) : null;
  const box = element("fieldset", { class: "group" }, element("legend", {}, words(name)), hint, fields.box);
  return {
    box,
    read: () => {
      const value = fields.read();
      return Object.keys(value).length ? value : undefined;
    },
    write: (value) => fields.write(value ?? {}),
    fault: (pointer, detail) => fields.fault(pointer, detail),
    clear: () => fields.clear(),
  };
}

/** @param {Json} schema */
const described = ({ description = "" }) => readable(description.replaceAll("`", ""), 0);

/** @param {string} name */
const words = (name) => name.replaceAll("_", " ");

/** @param {Json} schema */
const isHost = (schema) => (schema.items ?? schema).examples?.[0] === "a.example";

/** @param {HTMLInputElement} input @param {string[]} known */
function datalist(input, known) {
  const list = element("datalist", { id: `${input.id}-known` }, known.map((value) => element("option", { value })));
  input.setAttribute("list", list.id);
  return list;
}

// A default is left to the node, so that the document says only what the reader chose.
/** @param {unknown} value @param {Json} schema */
const isDefault = (value, schema) => value !== undefined && JSON.stringify(value) === JSON.stringify(schema.default);

// ---- kinds of fields

/**
 * @typedef {HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement} Input
 * @typedef {object} Kind
 * @property {string} name
 * @property {(schema: Json) => boolean} has
 * @property {(schema: Json, attributes: Json) => Input} make
 * @property {(input: any, schema: Json) => unknown} read
 * @property {(input: any, value: any, schema: Json) => void} write
 */

/** @param {Json} attributes @param {Json} schema @param {(text: string) => string} shown */
const textInput = (attributes, schema, shown = String) => {
  const example = schema.examples?.find((/** @type {unknown} */ each) => typeof each === "string");
  const fallback = given(schema.default) ? shown(schema.default) : example ? `e.g. ${shown(example)}` : "";
  return /** @type {HTMLInputElement} */ (element("input", { ...attributes, type: "text", autocomplete: "off", spellcheck: "false", placeholder: fallback }));
};

/** @param {(text: string) => unknown} parsed @param {(value: any) => string} shown */
const asText = (parsed, shown) => ({
  read: (/** @type {HTMLInputElement} */ input) => (input.value.trim() ? parsed(input.value.trim()) : undefined),
  write: (/** @type {HTMLInputElement} */ input, /** @type {any} */ value) => {
    input.value = value === undefined ? "" : shown(value);
  },
});

/** @param {string} text */
const pieces = (text) => text.split(",").map((piece) => piece.trim()).filter(Boolean);

/** @param {string} text */
function json(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error('This is not JSON; write for example {"country": "DE"}.');
  }
}

/** @type {Kind[]} */
const KINDS = [
  {
    name: "choice",
    has: (schema) => Boolean(schema.enum),
    make: (schema, attributes) => {
      const options = schema.enum.map((/** @type {unknown} */ value) => element("option", { value: JSON.stringify(value) }, String(value)));
      const none = schema.optional ? element("option", { value: "" }, "by default") : null;
      const made = /** @type {HTMLSelectElement} */ (element("select", attributes, none, options));
      if (given(schema.default)) made.value = JSON.stringify(schema.default);
      return made;
    },
    read: (input) => (input.value ? JSON.parse(input.value) : undefined),
    write: (input, value, schema) => {
      const shown = value ?? schema.default ?? (schema.optional ? undefined : schema.enum[0]);
      input.value = given(shown) ? JSON.stringify(shown) : "";
    },
  },
  {
    name: "yes-no",
    has: (schema) => schema.type === "boolean",
    make: (schema, { required: _, ...attributes }) => /** @type {HTMLInputElement} */ (element("input", { ...attributes, type: "checkbox", checked: schema.default === true })),
    read: (input) => input.checked,
    write: (input, value, schema) => {
      input.checked = value ?? schema.default === true;
    },
  },
  {
    name: "number",
    has: (schema) => schema.type === "integer" || schema.type === "number",
    make: (schema, attributes) => {
      const bounds = { min: schema.minimum, max: schema.maximum, step: schema.type === "integer" ? 1 : "any" };
      return /** @type {HTMLInputElement} */ (element("input", { ...attributes, ...bounds, type: "number", placeholder: schema.default ?? "" }));
    },
    ...asText(Number, String),
  },
  {
    name: "duration",
    has: (schema) => schema.format === "duration-text",
    make: (schema, attributes) => textInput(attributes, schema, durationWords),
    ...asText(durationOf, durationWords),
  },
  {
    name: "moment",
    has: (schema) => schema.format === "date-time" || schema.format === "moment",
    make: (schema, attributes) => textInput(attributes, { ...schema, examples: ["2026-12-01 14:30, in 10 min, @1h"] }),
    ...asText(momentFrom, momentWords),
  },
  {
    name: "text",
    has: (schema) => schema.type === "string",
    make: (schema, attributes) => textInput(attributes, schema),
    ...asText((text) => text, String),
  },
  {
    name: "list",
    has: (schema) => schema.type === "array" && resolvedType(schema.items) === "string",
    make: (schema, attributes) => textInput(attributes, { examples: ["one, another"], ...schema, default: undefined }),
    ...asText(pieces, (values) => values.join(", ")),
  },
  {
    name: "json",
    has: () => true,
    make: (schema, attributes) => {
      const example = schema.examples?.[0];
      return /** @type {HTMLTextAreaElement} */ (element("textarea", { ...attributes, rows: 2, spellcheck: "false", placeholder: example ? `e.g. ${JSON.stringify(example)}` : "JSON" }));
    },
    ...asText(json, (value) => (given(value) ? JSON.stringify(value, null, 1) : "")),
  },
];

// What is named by reference in a list is a word.
/** @param {Json | undefined} items */
const resolvedType = (items) => (items?.$ref ? "string" : items?.type);

/** @param {Json} schema */
const kindOf = (schema) => /** @type {Kind} */ (KINDS.find((kind) => kind.has(schema)));
