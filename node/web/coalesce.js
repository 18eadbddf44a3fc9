// Many wishes, few requests: an action that runs soon after it is asked for, but never too often.

const GATHER = 60;
const RETRY = 3_000;

/**
 * Returns a function that asks for `action`. Wishes made before it starts are served by one call;
 * calls are at least `gap` milliseconds apart, and longer where the action itself takes long, so
 * that a slow node is never kept busy by its own page. What the reader asked for by hand is urgent:
 * it does not wait for the gap. An action that resolves to false has failed and is tried again.
 */
export function coalesced(action, gap) {
  let timer = 0;
  let running = false;
  let wished = false;
  let hurried = false;
  let notBefore = 0;

  function plan() {
    if (running) return;
    clearTimeout(timer);
    const pause = hurried ? 0 : notBefore - performance.now();
    timer = setTimeout(run, Math.max(GATHER, pause));
  }

  async function run() {
    running = true;
    wished = hurried = false;
    const began = performance.now();
    const failed = (await action()) === false;
    const ended = performance.now();
    notBefore = ended + Math.max(failed ? RETRY : gap, 3 * (ended - began));
    running = false;
    if (wished || failed) plan();
  }

  return ({ urgent = false } = {}) => {
    wished = true;
    hurried ||= urgent;
    plan();
  };
}
