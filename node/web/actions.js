// What the reader can do to tasks and runs: each action says what it does and with which call of the
// API, is done only when confirmed, and tells its outcome. What the reader's token does not permit is
// not offered.

import { callOf, post } from "./calls.js";
import { byId, element, icon } from "./dom.js";
import { headlineOf } from "./parts.js";
import { partsOf, stateOf } from "./words.js";

const RANKS = ["read", "run", "operate", "own"];
const OPEN = new Set(["active", "paused", "refused"]);
const AHEAD = new Set(["waiting", "held", "scheduled", "set-aside"]);
const UNDER_WAY = new Set(["running", "merging"]);
// As many tasks as one request changes.
const AT_ONCE = 500;

export const CALLER_PATH = "/v1/tokens/self";

/** Returns the actions for a task, in the order in which they are offered; none for those who only read. */
export function taskActions(task, caller) {
  if (!may(caller, "run")) return [];
  const own = task.led_here && OPEN.has(task.state);
  return [
    task.pool ? null : "again",
    own && task.state === "active" ? "pause" : null,
    own && task.state === "paused" ? "resume" : null,
    own && task.state === "active" && may(caller, "operate") ? "release" : null,
    own ? "edit" : null,
    own ? "cancel" : null,
    own ? "alike" : null,
  ].filter(Boolean);
}

/** Returns the actions for a run. */
export function runActions(run, caller) {
  if (!may(caller, "run")) return [];
  return [AHEAD.has(run.state) || UNDER_WAY.has(run.state) ? "cancel-run" : null, "again"].filter(Boolean);
}

/** Returns whether the reader's token has a role, or one that includes it. */
export const may = (caller, role) => RANKS.indexOf(caller?.role ?? "read") >= RANKS.indexOf(role);

/**
 * @typedef {object} Subject what is acted on: a task, or a run and its task; `title` if neither has a headline
 * @property {any} [task]
 * @property {any} [run]
 * @property {any} [alert]
 * @property {string} [title]
 * @property {string} [kind] of a record
 * @property {string} [key] of a record
 * @property {string} [removal] what the removal of a record means
 * @property {import("./calls.js").Call} [call] what puts it back
 * @property {string} [start] when a task shall begin, in the form of it
 * @property {string | null} [length] how long it shall last, if its test has a duration
 * @typedef {object} Deed what is said and offered once something was done
 * @property {(answer: any) => string} done
 * @property {(answer: any) => { [field: string]: string }} [follow] where to go then
 * @property {(subject: Subject, answer: any) => [string, Subject]} [undo] the name of the action that undoes it, and on what
 */

// Of each action: its name, what it does in a sentence, the call, what to say then, and what undoes it.
const ACTIONS = {
  again: {
    name: "Run now",
    does: () => "Measures once more, as soon as there is time, as a task of its own.",
    call: async ({ task }, api) => post("/v1/tasks", onceMore(await api.get(`/v1/tasks/${task.id}`))),
    done: (answer) => `Task ${answer.id.slice(0, 8)} measures once.`,
    follow: (answer) => ({ task: answer.id }),
    undo: (_, answer) => ["cancel", { task: answer }],
  },
  pause: {
    name: "Pause",
    does: () => "Frees its future runs on all nodes, and plans no others until it is resumed.",
    call: ({ task }) => post(`/v1/tasks/${task.id}/pause`),
    done: () => "The task is paused.",
    undo: (subject) => ["resume", subject],
  },
  resume: {
    name: "Resume",
    does: () => "Plans its runs again from now on; those that the pause left out are not made up for.",
    call: ({ task }) => post(`/v1/tasks/${task.id}/resume`),
    done: () => "The task is planned again.",
    undo: (subject) => ["pause", subject],
  },
  release: {
    name: "Try again now",
    does: () => "Plans now what waits for time, and ends a hold by the policies of its pool.",
    call: ({ task }) => post(`/v1/tasks/${task.id}/release`),
    done: () => "What waited is planned now.",
  },
  cancel: {
    name: "Cancel",
    does: () => "Cancels the task and its runs on every participant, also a run that is under way. It cannot be undone.",
    call: ({ task }) => ({ method: "DELETE", path: `/v1/tasks/${task.id}` }),
    done: () => "The task is cancelled.",
    grave: true,
  },
  "cancel-run": {
    name: "Cancel this run",
    does: ({ run }) => {
      const what = UNDER_WAY.has(run.state) ? "Stops the run on all participants" : "Cancels this run on all participants";
      return `${what}; the other runs of its task stay. It cannot be undone.`;
    },
    call: ({ run }) => ({ method: "DELETE", path: `/v1/runs/${run.id}` }),
    done: (answer) => `The run is ${stateOf(answer.state).word}.`,
    grave: true,
  },
  alike: { name: "Cancel all like this", choose: (actions, subject) => actions.chooseAlike(subject) },
  create: { name: "New task …", choose: async (actions, subject, api) => (await import("./task-form.js")).newTask(api, actions, subject) },
  edit: { name: "Edit", choose: async (actions, subject, api) => (await import("./task-form.js")).editTask(api, actions, subject) },
  mesh: { name: "Mesh file …", choose: async (actions, _, api) => (await import("./mesh-form.js")).meshFile(api, actions) },
  drain: { name: "Drain", choose: async (actions, subject, api) => (await import("./drain.js")).askDrain(api, actions, subject) },
  undrain: {
    name: "End the drain",
    choose: async (actions, subject, api) => (await import("./drain.js")).askUndrain(api, actions, subject),
    call: async (_, api) => async () => (await import("./drain.js")).undrain(api),
    done: () => "The node takes runs again.",
  },
  acknowledge: {
    name: "Acknowledge",
    does: () => "Notes that you look after it, so that others need not.",
    call: ({ alert }) => alertCall(alert, { acknowledged: true }),
    done: () => "You look after it.",
    undo: (subject) => ["unacknowledge", subject],
  },
  unacknowledge: {
    name: "Take back that it is seen",
    does: () => "Notes that nobody looks after it.",
    call: ({ alert }) => alertCall(alert, { acknowledged: false }),
    done: () => "Nobody looks after it.",
  },
  silence: { name: "Silence …", choose: async (actions, subject) => (await import("./silence.js")).askSilence(actions, subject) },
  unsilence: {
    name: "End the silence",
    does: () => "Webhooks are told of it again.",
    call: ({ alert }) => alertCall(alert, { silent_until: "2000-01-01T00:00:00Z" }),
    done: () => "Webhooks are told of it again.",
  },
  "take back": { name: "Cancel what was created", call: ({ call }) => call, done: () => "What was created is cancelled.", grave: true },
  "new record": { name: "New …", choose: async (actions, { kind }, api) => (await import("./record-form.js")).newRecord(api, actions, kind) },
  "edit record": { name: "Edit", choose: async (actions, { kind, key }, api) => (await import("./record-form.js")).editRecord(api, actions, kind, key) },
  "remove record": {
    name: "Remove",
    does: ({ removal }) => removal,
    call: ({ call }) => call,
    done: () => "It is removed.",
    grave: true,
  },
  "remove back": { name: "Remove it again", call: ({ call }) => call, done: () => "It is removed again." },
  "edit back": { name: "Put it back", call: ({ call }) => call, done: () => "The task is as it was before." },
};

const alertCall = (alert, body) => ({ method: "PATCH", path: `/v1/alerts/${alert.id}`, body });

/** Returns the document of a task that measures once, now, what another one measures. */
function onceMore(task) {
  const kept = ["test", "tools", "priority", "campaign", "reference"].filter((name) => task[name] !== null);
  const document = Object.fromEntries(kept.map((name) => [name, task[name]]));
  const contexts = task.participants.filter(({ context }) => context).map(({ name, context }) => [name, context]);
  if (contexts.length) document.contexts = Object.fromEntries(contexts);
  if (task.archives?.length) document.archives = task.archives;
  if (!task.led_here) document.participants = task.participants.map(({ name }) => name);
  document.schedule = task.schedule.slip ? { slip: task.schedule.slip } : {};
  return document;
}

/** The dialog in which actions are chosen, confirmed, and told. */
export class Actions {
  #api;
  #dialog = byId("act");
  #onDone;

  constructor(api, onDone) {
    this.#api = api;
    this.#onDone = onDone;
    byId("act-close").addEventListener("click", () => this.#dialog.close());
    this.#dialog.addEventListener("click", ({ target }) => target === this.#dialog && this.#dialog.close());
  }

  /** Returns buttons for actions on a subject: `{ task }`, or `{ run, task }`. */
  buttons(names, subject) {
    if (!names.length) return null;
    const made = names.map((name) => this.#button(ACTIONS[name].name, () => this.open(name, subject), ACTIONS[name]));
    return element("p", { class: "actions" }, made);
  }

  /** Shows the actions on a task to choose from. */
  choose(names, subject) {
    this.#show(subject, this.buttons(names, subject));
  }

  /** Shows what an action does, to be confirmed. */
  async open(name, subject) {
    if (ACTIONS[name].choose) return ACTIONS[name].choose(this, subject, this.#api);
    const action = ACTIONS[name];
    try {
      const call = await action.call(subject, this.#api);
      const confirm = this.#button(action.name, () => this.perform(action, subject, call), { grave: action.grave });
      this.#ask(subject, [element("p", {}, action.does(subject)), callOf(call)], confirm);
    } catch (error) {
      this.#fail(subject, error);
    }
  }

  /**
   * Does what was confirmed, and tells its outcome; `failed` shows why not, by default instead of the question.
   * @param {Deed} action
   * @param {Subject} subject
   * @param {import("./calls.js").Call | (() => Promise<any>)} call one call, or what does many
   * @param {(error: any) => void} failed
   */
  async perform(action, subject, call, failed = (error) => this.#fail(subject, error)) {
    const free = this.#busy();
    try {
      const answer = typeof call === "function" ? await call() : await this.#api.call(call.method, call.path, call.body);
      const undo = action.undo?.(subject, answer);
      const again = undo && this.#button(`Undo: ${ACTIONS[undo[0]].name.toLowerCase()}`, () => this.#undo(...undo));
      this.#tell(subject, "done", action.done(answer), again);
      this.#onDone(action.follow?.(answer));
    } catch (error) {
      free();
      failed(error);
    }
  }

  // What was just confirmed is undone without another question.
  async #undo(name, subject) {
    const action = ACTIONS[name];
    await this.perform({ ...action, undo: undefined }, subject, await action.call(subject, this.#api));
  }

  // ---- all like this

  /**
   * Shows which tasks are like one, to be cancelled together.
   * @param {Subject} subject
   */
  async chooseAlike(subject) {
    this.#show(subject, element("p", {}, "Asking the node …"));
    try {
      const [tasks, one] = await Promise.all([openTasks(this.#api), this.#api.get(`/v1/tasks/${subject.task.id}`)]);
      const kinds = kindsOf(one).map((kind) => ({ ...kind, tasks: tasks.filter(kind.has) }));
      const options = kinds.map(({ words, tasks: alike }, index) => {
        return element("option", { value: index }, `${words}: ${alike.length}`);
      });
      const box = element("div", {});
      const pick = async (index) => box.replaceChildren(...(await this.#alike(kinds[index], subject)));
      const select = element("select", { change: ({ target }) => pick(Number(target.value)) }, options);
      this.#show(subject, element("div", {}, element("label", {}, "Cancel all ", select), box));
      await pick(0);
      select.focus();
    } catch (error) {
      this.#fail(subject, error);
    }
  }

  async #alike({ tasks, words }, subject) {
    const call = post("/v1/tasks/changes", { change: "cancel", tasks: tasks.slice(0, AT_ONCE).map(({ id }) => id) });
    const trial = await this.#api.call("POST", `${call.path}?dry_run=true`, call.body);
    const refused = new Map(trial.items.filter(({ problem }) => problem).map(({ task, problem }) => [task, problem]));
    const rest = tasks.length - call.body.tasks.length;
    const count = call.body.tasks.length - refused.size;
    const sentence = `${counted(count)} would be cancelled, with their runs. It cannot be undone.`;
    const action = {
      done: ({ items }) => {
        const failed = items.filter(({ problem }) => problem);
        const why = failed.length ? `; not ${counted(failed.length)}: ${failed[0].problem.detail}` : "";
        return `${counted(items.length - failed.length)} cancelled${why}`;
      },
    };
    const confirm = this.#button(`Cancel ${counted(count)}`, () => this.perform(action, subject, call), { grave: true });
    return [
      element("p", {}, sentence, rest ? ` ${counted(rest)} more would stay: one request changes ${AT_ONCE}.` : ""),
      element("ul", { class: "alike", tabindex: "0", "aria-label": `Tasks ${words}` }, tasks.slice(0, AT_ONCE).map((task) => {
        const problem = refused.get(task.id);
        return element("li", {}, ...headlineOf(task), problem ? element("p", { class: "reason" }, problem.detail) : null);
      })),
      callOf(call),
      this.#choices(count ? confirm : null),
    ];
  }

  // ---- the dialog

  #show(subject, ...content) {
    this.show(subject, content);
  }

  /**
   * Shows content in the dialog, also wide enough for two columns.
   * @param {Subject} subject
   * @param {(Node | null)[]} content
   */
  show(subject, content, { wide = false } = {}) {
    const { task, run, title } = subject;
    byId("act-title").replaceChildren(...(title ? [title] : headlineOf(run ?? task)));
    byId("act-body").replaceChildren(...content.filter((each) => each !== null));
    this.#dialog.classList.toggle("wide", wide);
    if (!this.#dialog.open) this.#dialog.showModal();
    byId("act-body").querySelector("button, select, input, textarea")?.focus();
  }

  close() {
    this.#dialog.close();
  }

  /**
   * Returns what is waited for, and says so meanwhile; nothing if it fails, which it tells.
   * @template T
   * @param {Subject} subject
   * @param {Promise<T>} promise
   * @returns {Promise<T | undefined>}
   */
  async loading(subject, promise) {
    this.#show(subject, element("p", {}, "Asking the node …"));
    try {
      return await promise;
    } catch (error) {
      this.#fail(subject, error);
    }
  }

  #ask(subject, content, confirm) {
    this.#show(subject, ...content, this.#choices(confirm));
    // A grave action is not done by an Enter that was meant for something else.
    byId("act-body").querySelector(confirm.classList.contains("grave") ? ".leave" : ".confirm").focus();
  }

  #choices(confirm) {
    confirm?.classList.add("confirm");
    const leave = element("button", { type: "button", class: "leave", click: () => this.#dialog.close() }, "Leave it");
    return element("p", { class: "actions" }, confirm, leave);
  }

  // Nothing can be pressed meanwhile; returns what ends that.
  #busy() {
    const pressed = [...byId("act-body").querySelectorAll("button, select, input, textarea")].filter(({ disabled }) => !disabled);
    for (const each of pressed) each.disabled = true;
    return () => {
      for (const each of pressed) each.disabled = false;
    };
  }

  #fail(subject, error) {
    this.#tell(subject, "failed", error.message);
  }

  #tell(subject, kind, sentence, undo) {
    const close = element("button", { type: "button", click: () => this.#dialog.close() }, "Close");
    const outcome = element("p", { class: `verdict ${kind}`, role: "status" }, icon(kind === "done" ? "check" : "cross"), element("span", {}, sentence));
    this.#show(subject, outcome, element("p", { class: "actions" }, undo, close));
    close.focus();
  }

  #button(words, click, { grave = false } = {}) {
    return element("button", { type: "button", class: grave ? "grave" : "", click }, words);
  }
}

const counted = (count) => `${count} task${count === 1 ? "" : "s"}`;

/** Returns in which ways tasks can be like this one, from the narrowest. */
function kindsOf(task) {
  const meshOf = ({ reference }) => reference?.mesh;
  const { test } = partsOf(task.headline);
  return [
    meshOf(task) && { words: `of the mesh ${meshOf(task)}`, has: (other) => meshOf(other) === meshOf(task) },
    task.requester && {
      words: `with ${test} that ${task.requester} requested`,
      has: (other) => other.test.type === task.test.type && other.requester === task.requester,
    },
    task.campaign && { words: `of the campaign ${task.campaign}`, has: (other) => other.campaign === task.campaign },
    { words: `with ${test}`, has: (other) => other.test.type === task.test.type },
  ].filter(Boolean);
}

async function openTasks(api) {
  const fields = "id,headline,test,campaign,reference,requester,led_here";
  const path = `/v1/tasks?state=active,paused&limit=500&fields=${fields}`;
  const tasks = [];
  let next = null;
  do {
    const page = await api.get(next ? `${path}&cursor=${next}` : path);
    tasks.push(...page.items);
    next = page.next;
  } while (next);
  return tasks.filter(({ led_here: here }) => here);
}
