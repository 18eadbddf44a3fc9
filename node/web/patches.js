// JSON merge patches (RFC 7396): what to send so that one document becomes another. Pure.

/** @typedef {{ [name: string]: any }} Json */

/** @param {unknown} value */
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** @param {unknown} one @param {unknown} other */
const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/**
 * Returns the patch that makes `after` of `before`; what is missing in `after` is removed by null.
 * @param {Json} before
 * @param {Json} after
 * @returns {Json}
 */
export function patchOf(before, after) {
  /** @type {Json} */
  const patch = {};
  for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const [old, now] = [before[name], after[name]];
    if (same(old, now)) continue;
    if (now === undefined) patch[name] = null;
    else patch[name] = isObject(old) && isObject(now) ? patchOf(old, now) : now;
  }
  return patch;
}
