// The event stream of the node, read by fetch, because EventSource cannot send the token.

const EVENTS_PATH = "/v1/events?types=run,interval,task,reservation,node,archive,campaign";
const PAUSE_FIRST = 1_000;
const PAUSE_LONGEST = 15_000;
// A stream that is silent for longer may be dead without either side knowing, so it is reopened.
const SILENCE_LONGEST = 120_000;

/** Follows `/v1/events` until it is stopped. Calls `onOpen()`, `onEvent(type, data, id)` and `onDown(why)`. */
export class Stream {
  #api;
  #handlers;
  #path;
  #lastId;
  #stopped = false;
  /** @type {AbortController | null} */
  #abort = null;
  #pause = PAUSE_FIRST;
  /** @type {((value?: unknown) => void) | null} */
  #wake = null;

  /**
   * Begins with what comes, or with what the node has kept of the events `after` one.
   * @param {import("./api.js").Api} api
   * @param {any} handlers
   * @param {{ path?: string, after?: string | null }} from
   */
  constructor(api, handlers, { path = EVENTS_PATH, after = null } = {}) {
    this.#api = api;
    this.#handlers = handlers;
    this.#path = path;
    this.#lastId = after;
  }

  async start() {
    while (!this.#stopped) {
      const why = await this.#follow();
      if (this.#stopped) return;
      const pause = this.#pause * (0.75 + Math.random() / 2);
      this.#pause = Math.min(PAUSE_LONGEST, this.#pause * 2);
      this.#handlers.onDown(why);
      await this.#rest(pause);
    }
  }

  /** Ends the stream for good. */
  stop() {
    this.#stopped = true;
    this.#abort?.abort();
    this.#wake?.();
  }

  /** Ends the pause before the next attempt, because the node seems to be back. */
  retry() {
    this.#wake?.();
  }

  #rest(pause) {
    return new Promise((resolve) => {
      this.#wake = resolve;
      setTimeout(resolve, pause);
    });
  }

  // Follows the stream until it ends; returns the node's reason if it refused to open one.
  async #follow() {
    const abort = new AbortController();
    this.#abort = abort;
    let watchdog = 0;
    try {
      const resume = this.#lastId === null ? {} : { "Last-Event-ID": this.#lastId };
      const headers = { Accept: "text/event-stream", ...resume };
      const response = await this.#api.open(this.#path, headers, abort.signal);
      this.#pause = PAUSE_FIRST;
      this.#handlers.onOpen();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      const parser = new EventParser((event) => this.#take(event));
      for (;;) {
        clearTimeout(watchdog);
        watchdog = setTimeout(() => abort.abort(), SILENCE_LONGEST);
        const { value, done } = await reader.read();
        if (done) return null;
        parser.feed(value);
      }
    } catch (error) {
      return error.status ? error.message : null;
    } finally {
      clearTimeout(watchdog);
    }
  }

  #take({ id, type, data }) {
    if (id !== null) this.#lastId = id;
    try {
      this.#handlers.onEvent(type, JSON.parse(data), id);
    } catch (error) {
      console.warn("An event could not be processed:", data, error);
    }
  }
}

/** Parses text piece by piece, and calls back with each complete event (WHATWG HTML, section 9.2.6). */
export class EventParser {
  #buffer = "";
  /** @type {string | null} */
  #id = null;
  #type = "message";
  #data = [];
  #emit;

  constructor(emit) {
    this.#emit = emit;
  }

  feed(text) {
    this.#buffer += text;
    // A carriage return at the end may be half of a line end, so it waits for the rest.
    for (let match; (match = /\r\n|\n|\r(?!$)/u.exec(this.#buffer)); ) {
      const line = this.#buffer.slice(0, match.index);
      this.#buffer = this.#buffer.slice(match.index + match[0].length);
      this.#line(line);
    }
  }

  #line(line) {
    if (line === "") {
      if (this.#data.length) this.#emit({ id: this.#id, type: this.#type, data: this.#data.join("\n") });
      this.#type = "message";
      this.#data = [];
      return;
    }
    const [, field, value] = /^([^:]*)(?:: ?(.*))?$/su.exec(line) ?? [];
    if (field === "data") this.#data.push(value ?? "");
    else if (field === "event") this.#type = value;
    else if (field === "id") this.#id = value;
  }
}
