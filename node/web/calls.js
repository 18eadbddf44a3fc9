// A call of the API as a line, and as a command.

import { element } from "./dom.js";

/**
 * @typedef {object} Call a request of the API
 * @property {string} method
 * @property {string} path
 * @property {any} [body]
 */

/**
 * @param {string} path
 * @param {{ [name: string]: any }} [body]
 * @returns {Call}
 */
export const post = (path, body) => ({ method: "POST", path, body });

/**
 * Shows a call of the API as a line, and as a command.
 * @param {Call} call
 */
export function callOf({ method, path, body }) {
  const data = body === undefined ? "" : ` \\\n  -H 'Content-Type: application/json' -d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`;
  const command = `curl -X ${method} -H "Authorization: Bearer $TOKEN" '${location.origin}${path}'${data}`;
  return element(
    "details",
    { class: "call", open: body === undefined },
    element("summary", {}, element("code", {}, `${method} ${path}`)),
    element("pre", {}, command),
  );
}
