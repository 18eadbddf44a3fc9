// The question for how long an alert is silent.

import { element } from "./dom.js";
import { momentOf } from "./words.js";

/**
 * Asks until when webhooks are told nothing of an alert.
 * @param {import("./actions.js").Actions} actions
 * @param {import("./actions.js").Subject} subject
 */
export function askSilence(actions, subject) {
  const hours = element("input", { id: "silence-hours", type: "number", min: 1, max: 720, value: 8, required: true });
  const submit = (event) => {
    event.preventDefault();
    const until = new Date(Date.now() + Number(hours.value) * 3_600_000).toISOString();
    actions.perform(
      { done: (answer) => `No webhook is told of it until ${momentOf(Date.parse(answer.silent_until), Date.now())}.`, undo: () => ["unsilence", subject] },
      subject,
      { method: "PATCH", path: `/v1/alerts/${subject.alert.id}`, body: { silent_until: until } },
    );
  };
  const leave = element("button", { type: "button", class: "leave", click: () => actions.close() }, "Leave it");
  const form = element(
    "form",
    { submit },
    element("p", {}, "No webhook is told of this alert meanwhile, nor of the same rule of this task again. It stays in the list."),
    element("p", { class: "field" }, element("label", { for: "silence-hours" }, "For how many hours"), hours),
    element("p", { class: "actions" }, element("button", { class: "confirm" }, "Silence"), leave),
  );
  actions.show(subject, [form]);
}
