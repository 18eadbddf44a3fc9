// The drain of this node: no new runs from now on, until it is ended. It is what `parley node drain` does: the time of the node is
// reserved without end, and an attribute tells other nodes.

import { callOf, post } from "./calls.js";
import { element } from "./dom.js";

const NAME = "drained: ";
const NAME_MOST = 100;
const DAY = "P1D";
const DAY_MS = 86_400_000;
const AHEAD = ["held", "scheduled"];
const SELF = "/v1/nodes/self";

/**
 * Asks for the reason of a drain, and says what it does.
 * @param {import("./api.js").Api} api
 * @param {import("./actions.js").Actions} actions
 * @param {import("./actions.js").Subject} subject
 */
export async function askDrain(api, actions, subject) {
  const now = Date.now();
  const [from, to] = [now, now + DAY_MS].map((instant) => new Date(instant).toISOString());
  const sums = await actions.loading(subject, api.get(`/v1/schedule?from=${from}&to=${to}&resolution=PT24H`));
  if (!sums) return;
  const booked = sums.buckets.reduce((total, { runs }) => total + AHEAD.reduce((sum, state) => sum + (runs[state] ?? 0), 0), 0);
  const reason = element("input", { id: "drain-reason", value: "maintenance", maxlength: 80, required: true });
  const keep = element("input", { id: "drain-keep", type: "checkbox" });
  const told = element("p", { role: "status" });
  const call = element("div", {});
  const draw = () => {
    const runs = `${booked} run${booked === 1 ? "" : "s"} booked in the next 24 hours`;
    told.textContent = keep.checked ? `The ${runs} take place; no others are booked.` : `The ${runs} give way: their leads plan them again. What has begun goes on to its end.`;
    call.replaceChildren(callOf(post("/v1/reservations", documentOf(reason.value, keep.checked))));
  };
  for (const field of [reason, keep]) field.addEventListener("input", draw);
  const submit = (event) => {
    event.preventDefault();
    actions.perform(
      { done: ({ displaced, inside }) => `The node takes no new runs. ${displaced} booked runs gave way, ${inside - displaced} stay.`, undo: () => ["undrain", subject] },
      subject,
      () => drain(api, reason.value, keep.checked),
    );
  };
  const form = element(
    "form",
    { submit },
    element("p", {}, "This node takes no new runs from now on, until the drain is ended. Its tasks stay, and are planned again then."),
    element("p", { class: "field" }, element("label", { for: "drain-reason" }, "Reason, which other nodes see"), reason),
    element("p", { class: "field" }, keep, element("label", { for: "drain-keep" }, " Keep the runs that are booked")),
    told,
    call,
    choices(actions, "Drain this node"),
  );
  draw();
  actions.show(subject, [form]);
}

/**
 * Says what the end of a drain does.
 * @param {import("./api.js").Api} api
 * @param {import("./actions.js").Actions} actions
 * @param {import("./actions.js").Subject} subject
 */
export async function askUndrain(api, actions, subject) {
  const drains = await actions.loading(subject, drainsOf(api));
  if (!drains) return;
  const submit = (event) => {
    event.preventDefault();
    actions.perform({ done: () => "The node takes runs again." }, subject, () => undrain(api));
  };
  const calls = drains.map(({ id }) => callOf({ method: "DELETE", path: `/v1/reservations/${id}` }));
  actions.show(subject, [element("form", { submit }, element("p", {}, "The node takes runs again at once. Runs that gave way are not put back."), ...calls, choices(actions, "End the drain"))]);
}

function choices(actions, words) {
  const leave = element("button", { type: "button", class: "leave", click: () => actions.close() }, "Leave it");
  return element("p", { class: "actions" }, element("button", { class: "confirm" }, words), leave);
}

const documentOf = (reason, keeps) => ({ kind: "maintenance", name: `${NAME}${reason}`.slice(0, NAME_MOST), schedule: { repeat: DAY }, duration: DAY, displace: !keeps });

async function drain(api, reason, keeps) {
  const before = await drainsOf(api);
  const made = await api.call("POST", "/v1/reservations", documentOf(reason, keeps));
  await remove(api, before);
  await api.call("PATCH", SELF, { attributes: { drained: `${reason} (from ${made.schedule.start})` } });
  return { displaced: made.displaced_count ?? 0, inside: made.inside_count ?? 0 };
}

/**
 * Ends the drain.
 * @param {import("./api.js").Api} api
 */
export async function undrain(api) {
  await remove(api, await drainsOf(api));
  await api.call("PATCH", SELF, { attributes: { drained: null } });
}

async function drainsOf(api) {
  const found = [];
  let next = null;
  do {
    const page = await api.get(`/v1/reservations?limit=500${next ? `&cursor=${next}` : ""}`);
    found.push(...page.items);
    next = page.next;
  } while (next);
  return found.filter(({ pool, name }) => pool === null && name.startsWith(NAME));
}

const remove = (api, drains) => Promise.all(drains.map(({ id }) => api.call("DELETE", `/v1/reservations/${id}`)));
