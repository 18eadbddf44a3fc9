// Merges calls of an action: it runs soon after a call, but not too often.

const GATHER = 60;
const RETRY = 3_000;

/**
 * Returns a function that requests `action`. Requests made before it starts are served by one call;
 * calls are at least `gap` milliseconds apart, and more if the action itself takes long, so that the
 * page does not keep a slow node busy. A request caused by the reader is urgent and does not wait for
 * the gap. An action that resolves to false has failed and is retried.
 */
export function coalesced(action, gap) {
  let timer = 0;
  let running = false;
  let requested = false;
  let isUrgent = false;
  let notBefore = 0;

  function plan() {
    if (running) return;
    clearTimeout(timer);
    const pause = isUrgent ? 0 : notBefore - performance.now();
    timer = setTimeout(run, Math.max(GATHER, pause));
  }

  async function run() {
    running = true;
    requested = isUrgent = false;
    const began = performance.now();
    const failed = (await action()) === false;
    const ended = performance.now();
    notBefore = ended + Math.max(failed ? RETRY : gap, 3 * (ended - began));
    running = false;
    if (requested || failed) plan();
  }

  return ({ urgent = false } = {}) => {
    requested = true;
    isUrgent ||= urgent;
    plan();
  };
}
