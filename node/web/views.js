// The views of the page. Each but the overview is a module of its own, loaded when it is first shown:
//
//   open(box, context)  draws into an empty box, and returns what the page tells the view:
//     fetch()             asks the node and draws; called at once, when the address changes, and by events
//     events, gap         the kinds of events after which to ask again ("ended" for runs that are over),
//                         and the least time between (ms)
//     onEvent(type, data) a look at each event, before that
//     redraw()            what the reader may do has changed
//     tick(now)           once a second
//     close()             the reader goes elsewhere

import { coalesced } from "./coalesce.js";
import { byId, element, setText } from "./dom.js";
import { addressOf, viewOf } from "./place.js";
import { isOver } from "./words.js";

const LOADERS = {
  alerts: () => import("./view-alerts.js"),
  mesh: () => import("./view-mesh.js"),
  pair: () => import("./view-pair.js"),
  timeline: () => import("./view-timeline.js"),
  tasks: () => import("./view-tasks.js"),
  capacity: () => import("./view-capacity.js"),
  campaigns: () => import("./view-campaigns.js"),
  sharing: () => import("./view-sharing.js"),
  archives: () => import("./view-archives.js"),
  nodes: () => import("./view-nodes.js"),
  limits: () => import("./view-limits.js"),
  events: () => import("./view-events.js"),
  search: () => import("./view-search.js"),
};

/** The navigation by what people want: each word with its views, the first of which it leads to. */
const GROUPS = {
  Now: { overview: "Now", alerts: "Alerts", timeline: "Timeline" },
  Meshes: { mesh: "Meshes", pair: "Pairs" },
  Tasks: { tasks: "Tasks" },
  Why: { search: "Why", events: "Events" },
  Nodes: { nodes: "Nodes", capacity: "Capacity" },
  Sharing: { sharing: "Sharing", campaigns: "Campaigns" },
  Settings: { limits: "Limits", archives: "Archives" },
};

const TITLES = Object.assign({}, ...Object.values(GROUPS));

/** The name of the first view of a view's group. */
const LEADS = Object.fromEntries(Object.values(GROUPS).flatMap((views) => Object.keys(views).map((name) => [name, Object.keys(views)[0]])));

const hrefOfView = (name) => (name === "overview" ? "#" : addressOf({ view: name }));

export class Views {
  #context;
  #reporting;
  #name = "overview";
  /** @type {any} what the view that is shown has returned */
  #shown = null;
  /** @type {((how?: { urgent?: boolean }) => void) | null} */
  #refresh = null;

  /** `context` has what views share: the API, the model, the caller's role, the actions. */
  constructor(context, reporting) {
    this.#context = context;
    this.#reporting = reporting;
    const links = Object.entries(GROUPS).map(([title, views]) => {
      const [name] = Object.keys(views);
      return element("li", {}, element("a", { href: hrefOfView(name), "data-view": name }, title));
    });
    byId("views").replaceChildren(...links);
  }

  /** Returns whether the overview is shown. */
  get isOverview() {
    return this.#name === "overview";
  }

  /** Shows the view that the address names. */
  async show() {
    const named = viewOf();
    const name = named in TITLES ? named : "overview";
    const before = this.#name;
    this.#mark(name);
    if (name === before) return this.refresh({ urgent: true });
    this.#name = name;
    this.#shown?.close?.();
    this.#shown = this.#refresh = null;
    const panel = byId("view-panel");
    byId("overview").hidden = name !== "overview";
    panel.hidden = name === "overview";
    if (name === "overview") return undefined;
    setText(byId("view-heading"), TITLES[name]);
    byId("view-tools").replaceChildren();
    const box = element("div", { id: `${name}-view` }, element("p", { class: "empty" }, "Loading …"));
    byId("view").replaceChildren(box);
    byId("view-heading").focus({ preventScroll: true });
    scrollTo(0, 0);
    return this.#reporting(() => this.#open(name, box));
  }

  async #open(name, box) {
    const module = await LOADERS[name]();
    // The reader may have gone on meanwhile.
    if (!box.isConnected) return;
    const shown = module.open(box, { ...this.#context, tools: byId("view-tools") });
    this.#shown = shown;
    this.#refresh = coalesced(() => this.#shown !== shown || this.#reporting(() => shown.fetch()), shown.gap ?? 5_000);
    this.#refresh({ urgent: true });
  }

  #mark(name) {
    const [group, views] = /** @type {[string, { [name: string]: string }]} */ (Object.entries(GROUPS).find(([, each]) => name in each));
    const kin = Object.entries(views).length > 1 ? Object.entries(views) : [];
    const list = byId("kin");
    list.replaceChildren(...kin.map(([each, title]) => element("li", {}, element("a", { href: hrefOfView(each), "data-view": each }, title))));
    list.parentElement.setAttribute("aria-label", `Views of ${group}`);
    list.parentElement.hidden = !kin.length;
    for (const [box, current] of [[byId("views"), LEADS[name]], [list, name]]) {
      for (const link of box.querySelectorAll("a")) {
        if (link.dataset.view !== current) link.removeAttribute("aria-current");
        else link.setAttribute("aria-current", "page");
      }
    }
    document.body.dataset.view = name;
    this.reveal();
  }

  /** Moves the row of views, which on a phone is longer than the screen, to the one that is shown. */
  reveal() {
    const row = /** @type {HTMLElement} */ (byId("views"));
    const link = /** @type {HTMLElement | null} */ (row.querySelector("[aria-current]"));
    if (link) row.scrollLeft = link.offsetLeft - (row.clientWidth - link.offsetWidth) / 2;
  }

  /** Asks again for what the view shows. */
  refresh(how = {}) {
    this.#refresh?.(how);
  }

  onEvent(type, data) {
    this.#shown?.onEvent?.(type, data);
    const kind = type === "run" && isOver(data.state) ? ["run", "ended"] : [type];
    if (kind.some((each) => this.#shown?.events?.includes(each)) || type === "gap") this.refresh();
  }

  redraw() {
    this.#shown?.redraw?.();
  }

  tick(now) {
    this.#shown?.tick?.(now);
  }
}
