// The client of the node's API. Every request carries the token, if there is one.

const TOKEN_KEY = "parley-token";
const NO_CONTENT = 204;

/** A failed request, with a sentence for the reader, and the problem document if there is one. */
export class ApiError extends Error {
  /**
   * @param {string} message
   * @param {number} status
   * @param {{ [name: string]: any } | null} problem
   */
  constructor(message, status = 0, problem = null) {
    super(message);
    this.status = status;
    this.problem = problem;
  }
}

/** The API of this origin; `askToken(again)` is called when the node requires a token. */
export class Api {
  #askToken;
  #asking = null;

  constructor(askToken) {
    this.#askToken = askToken;
  }

  /** Asks the reader for a token, although what was asked until now needs none. */
  signIn() {
    return this.#newToken(sessionStorage.getItem(TOKEN_KEY), false);
  }

  /** Uses a token from now on, in this tab. */
  keep(token) {
    sessionStorage.setItem(TOKEN_KEY, token);
  }

  /** Returns a document of the API. */
  async get(path) {
    const response = await this.open(path, { Accept: "application/json" });
    return response.json();
  }

  /** Makes a change, with a document unless it needs none, and returns the answer. */
  async call(method, path, document) {
    const type = document === undefined ? {} : { "Content-Type": "application/json" };
    const headers = { Accept: "application/json", ...type };
    const options = { method, body: document === undefined ? undefined : JSON.stringify(document) };
    const response = await this.open(path, headers, undefined, options);
    return response.status === NO_CONTENT ? null : response.json();
  }

  /** Returns a response with an unread body; asks for a token until the node accepts it. */
  async open(path, headers, signal, options = {}) {
    for (let again = false; ; again = true) {
      const token = sessionStorage.getItem(TOKEN_KEY);
      const response = await this.#fetch(path, { ...options, headers, signal }, token);
      if (response.ok) return response;
      if (response.status !== 401) throw await problemOf(response);
      await this.#newToken(token, again || token !== null);
    }
  }

  async #fetch(path, options, token) {
    const authorization = token ? { Authorization: `Bearer ${token}` } : {};
    try {
      return await fetch(path, { ...options, headers: { ...options.headers, ...authorization } });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError("The node cannot be reached.");
    }
  }

  // Several requests may be refused at once: ask the reader once for all of them.
  async #newToken(refused, again) {
    if (sessionStorage.getItem(TOKEN_KEY) !== refused) return;
    this.#asking ??= this.#askToken(again).then((token) => {
      this.keep(token);
      this.#asking = null;
    });
    await this.#asking;
  }
}

async function problemOf(response) {
  try {
    const problem = await response.json();
    const detail = problem.detail && problem.detail !== problem.title ? `: ${problem.detail}` : "";
    return new ApiError(`${problem.title}${detail}`, response.status, problem);
  } catch {
    return new ApiError(`The node answered ${response.status} ${response.statusText}.`, response.status);
  }
}
