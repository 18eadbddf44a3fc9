// Durations and moments as people type them, and as the API has them. Pure.

const PARTS = [["W", "w"], ["D", "d"], ["H", "h"], ["M", "min"], ["S", "s"]];
/** @type {Record<string, number>} */
const SECONDS = { ms: 0.001, s: 1, sec: 1, m: 60, min: 60, h: 3600, d: 86_400, w: 604_800 };
const WRITTEN = /^P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?$/u;
const PIECE = /(\d+(?:\.\d+)?)\s*([a-z]+)\s*/giu;

/**
 * Writes a duration of the API as people do, exactly: PT1H30M becomes "1 h 30 min".
 * @param {string} iso
 */
export function durationWords(iso) {
  const match = WRITTEN.exec(iso);
  if (!match) return iso;
  const words = match.slice(1).map((count, index) => (count ? `${count} ${PARTS[index][1]}` : ""));
  return words.filter(Boolean).join(" ") || "0 s";
}

/**
 * Returns a duration as the API wants it, from "5m", "1 h 30 min", "200 ms" or ISO 8601; other
 * texts as they are, for the node to refuse.
 * @param {string} text
 */
export function durationOf(text) {
  const trimmed = text.trim();
  if (WRITTEN.test(trimmed.toUpperCase())) return trimmed.toUpperCase();
  const pieces = [...trimmed.matchAll(PIECE)];
  const whole = pieces.map(([piece]) => piece).join("") === trimmed;
  const known = pieces.every(([, , unit]) => unit.toLowerCase() in SECONDS);
  if (!pieces.length || !whole || !known) return trimmed;
  const seconds = pieces.reduce((sum, [, count, unit]) => sum + Number(count) * SECONDS[unit.toLowerCase()], 0);
  return isoOf(Number(seconds.toFixed(6)));
}

/** @param {number} seconds */
function isoOf(seconds) {
  const days = Math.floor(seconds / SECONDS.d);
  const hours = Math.floor((seconds % SECONDS.d) / SECONDS.h);
  const minutes = Math.floor((seconds % SECONDS.h) / SECONDS.min);
  const rest = Number((seconds % SECONDS.min).toFixed(6));
  const time = [hours && `${hours}H`, minutes && `${minutes}M`, rest && `${rest}S`].filter(Boolean).join("");
  if (!days && !time) return "PT0S";
  return `P${days ? `${days}D` : ""}${time ? `T${time}` : ""}`;
}

/**
 * Returns a moment as the API wants it: an instant from "2026-12-01 14:30" in the reader's zone,
 * a duration from now from "in 10 min", a full interval from "@1h".
 * @param {string} text
 */
export function momentFrom(text) {
  const trimmed = text.trim();
  if (/^in\s/iu.test(trimmed)) return durationOf(trimmed.slice(3));
  if (trimmed.startsWith("@")) return `@${durationOf(trimmed.slice(1))}`;
  if (/^\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?$/u.test(trimmed)) {
    return new Date(trimmed.replace(" ", "T")).toISOString().replace(".000Z", "Z");
  }
  return /^\d+(\.\d+)?\s*[a-z]/iu.test(trimmed) ? durationOf(trimmed) : trimmed;
}

/**
 * Writes a moment of the API as people do: an instant in the reader's zone.
 * @param {string} moment
 */
export function momentWords(moment) {
  if (moment.startsWith("@")) return `@${durationWords(moment.slice(1))}`;
  if (moment.startsWith("P")) return `in ${durationWords(moment)}`;
  const at = new Date(moment);
  if (Number.isNaN(at.getTime()) || moment.includes(".")) return moment;
  const two = (/** @type {number} */ number) => String(number).padStart(2, "0");
  const date = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${date} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}
