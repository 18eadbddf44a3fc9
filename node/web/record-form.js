// Forms of what is kept by name or id: reservations, pools, and campaigns, made from their schemas.

import { element } from "./dom.js";
import { patchOf } from "./patches.js";
import { changes, PreviewForm } from "./preview-form.js";
import { SchemaFields } from "./schema-form.js";

/**
 * @typedef {import("./api.js").Api} Api
 * @typedef {import("./actions.js").Actions} Actions
 * @typedef {{ [name: string]: any }} Json
 * @typedef {object} Kind of records
 * @property {string} noun
 * @property {string} schema the name of what is posted, in the description of the API
 * @property {string} path
 * @property {string} key the field that names one
 * @property {string[]} first what is not folded away
 * @property {string[]} fixed what an edit cannot change
 * @property {string} removal what its removal means
 */

/** @type {Record<string, Kind>} */
export const KINDS = {
  reservation: {
    noun: "reservation",
    schema: "ReservationDocument",
    path: "/v1/reservations",
    key: "id",
    first: ["kind", "name", "duration", "schedule", "pool", "displace"],
    fixed: ["pool"],
    removal: "The time is free again at once; runs that had to give way are not put back.",
  },
  pool: {
    noun: "pool",
    schema: "PoolDocument",
    path: "/v1/pools",
    key: "name",
    first: ["name", "match", "policy", "choice"],
    fixed: ["name", "lead"],
    removal: "Its nodes stay. It is refused while tasks need the pool.",
  },
  campaign: {
    noun: "campaign",
    schema: "CampaignDocument",
    path: "/v1/campaigns",
    key: "name",
    first: ["name", "weight", "level", "parent"],
    fixed: ["name"],
    removal: "It is refused for one that was ever used.",
  },
};

/** The fields of a record; what the node finds wrong is shown at them. */
class RecordFields {
  #fields;

  /** @param {SchemaFields} fields */
  constructor(fields) {
    this.#fields = fields;
    this.box = fields.box;
  }

  read() {
    return this.#fields.read();
  }

  /** @param {Json} document */
  write(document) {
    this.#fields.write(document);
  }

  /** @param {Json[]} errors */
  fault(errors) {
    return errors.filter(({ pointer, detail }) => !this.#fields.fault(pointer.split("/").slice(1), detail));
  }

  clear() {
    this.#fields.clear();
  }
}

/** @param {Api} api @param {Kind} kind @param {string[]} without */
async function fieldsOf(api, kind, without) {
  const [openapi, ...lists] = await Promise.all(
    ["/v1/openapi.json", "/v1/campaigns?limit=500", "/v1/pools?limit=500", "/v1/policysets", "/v1/tests", "/v1/nodes"].map((path) => api.get(path)),
  );
  const [campaign, pool, set, tests, host] = lists.map(({ items }) => items.map((/** @type {Json} */ { name }) => name));
  const schemas = openapi.components.schemas;
  const schema = schemas[`${kind.schema}-Input`] ?? schemas[kind.schema];
  const suggestions = { campaigns: campaign, parent: campaign, pool, set, tests, leads: host, host };
  return new RecordFields(new SchemaFields(schema, { defs: schemas, suggestions, first: kind.first, without }));
}

/**
 * Shows the form of a new record.
 * @param {Api} api
 * @param {Actions} actions
 * @param {string} name of the kind
 */
export async function newRecord(api, actions, name) {
  const kind = KINDS[name];
  const subject = { title: `New ${kind.noun}` };
  const fields = await actions.loading(subject, fieldsOf(api, kind, []));
  if (!fields) return;
  /** @type {import("./preview-form.js").Manner} */
  const manner = {
    send: `Create this ${kind.noun}`,
    call: (body) => ({ method: "POST", path: kind.path, body }),
    preview: async () => [element("p", { class: "hint" }, "What is wrong is told when it is sent; nothing is changed then.")],
    deed: {
      done: (made) => [`The ${kind.noun} ${made.name} was created`, giveWay(made)].join("; "),
      undo: (_, made) => ["remove back", { ...subject, call: { method: "DELETE", path: `${kind.path}/${made[kind.key]}` } }],
    },
  };
  show(actions, subject, fields, manner);
}

/**
 * Shows the form of a record that there is.
 * @param {Api} api
 * @param {Actions} actions
 * @param {string} name of the kind
 * @param {string} key
 */
export async function editRecord(api, actions, name, key) {
  const kind = KINDS[name];
  const path = `${kind.path}/${key}`;
  const waited = { title: `Edit the ${kind.noun}` };
  const loaded = await actions.loading(waited, Promise.all([fieldsOf(api, kind, kind.fixed), api.get(path)]));
  if (!loaded) return;
  const [fields, record] = loaded;
  const subject = { title: `Edit the ${kind.noun} ${record.name}` };
  fields.write(record);
  const before = fields.read();
  let after = before;
  /** @type {import("./preview-form.js").Manner} */
  const manner = {
    send: `Change this ${kind.noun}`,
    call: (document) => {
      after = document;
      const patch = patchOf(before, document);
      return Object.keys(patch).length ? { method: "PATCH", path, body: { ...patch, revision: record.revision } } : null;
    },
    preview: async (document) => {
      const same = !Object.keys(patchOf(before, document)).length;
      return same ? [element("p", { class: "hint" }, "Nothing is changed yet.")] : [element("h3", {}, "Would be changed"), changes(before, document)];
    },
    deed: {
      done: (made) => [`The ${kind.noun} ${made.name} is changed`, giveWay(made)].join("; "),
      undo: () => ["edit back", { ...subject, call: { method: "PATCH", path, body: patchOf(after, before) } }],
    },
  };
  show(actions, subject, fields, manner);
}

/** @param {Actions} actions @param {import("./actions.js").Subject} subject @param {RecordFields} fields @param {import("./preview-form.js").Manner} manner */
function show(actions, subject, fields, manner) {
  const form = new PreviewForm(actions, subject, fields, manner);
  actions.show(subject, [form.form], { wide: true });
  form.changed();
}

// What a reservation did to the runs that were booked in its time.
/** @param {Json} record */
function giveWay({ inside_count: inside, displaced_count: displaced }) {
  if (!inside) return "nothing else changes";
  return `${inside} booked run${inside === 1 ? "" : "s"} inside, ${displaced ?? 0} gave way, the others stay`;
}
