// Requests that follow what one chooses or types: sent at once, then at most every few milliseconds; the one before is cancelled,
// and answers are kept for a while, so that going back shows them without asking.
import { ask, epoch } from "./api.js";
import { useLayoutEffect, useRef, useState } from "./dom.js";
import { useStore } from "./store.js";

const DEBOUNCE_MS = 40;
const MAX_ANSWERS = 200;
const KEPT_MS = 30_000;
const REPEAT_MS = 2000;
const answers = new Map();
epoch.subscribe(() => answers.clear());

const NOTHING = { data: null, error: null, loading: false };

/** `{data, error, loading}` of a request `{method, path, body}`; null asks for nothing. Old data stays until new comes. */
export function useLiveRequest(request) {
  const [state, setState] = useState(NOTHING);
  const age = useStore(epoch);
  const asked = useRef({ at: 0, refusedIn: -1 });
  const name = request && JSON.stringify(request);
  // Not an effect, which would wait for the next frame: the request goes out with the letter.
  useLayoutEffect(() => {
    if (!request) {
      setState(NOTHING);
      return undefined;
    }
    const known = recall(name);
    if (known) {
      setState({ data: known, error: null, loading: false });
      return undefined;
    }
    if (asked.current.refusedIn === age) return undefined;  // the same key would be refused again
    const control = new AbortController();
    const now = performance.now();
    const wait = now - asked.current.at > 3 * DEBOUNCE_MS ? 0 : DEBOUNCE_MS;
    asked.current.at = now;
    setState((old) => ({ ...old, loading: true }));
    let timer = null;
    const run = () => ask(request.method, request.path, { body: request.body, signal: control.signal }).then(
      (data) => {
        if (control.signal.aborted) return;
        setState({ data, error: null, loading: false });
        if (isIncomplete(data)) timer = setTimeout(run, REPEAT_MS);
        else keep(name, data);
      },
      (error) => {
        if (control.signal.aborted) return;
        if (error.status === 401 || error.status === 403) asked.current.refusedIn = age;
        setState({ data: null, error, loading: false });
        if (error.status === 503) timer = setTimeout(run, REPEAT_MS);
      },
    );
    if (wait) timer = setTimeout(run, wait);
    else run();
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [name, age]);
  return state;
}

/** Whether servers are still starting, or a part of the search failed: another answer may be better. */
function isIncomplete(data) {
  return (data.degraded ?? data.metadata?.degraded ?? []).length > 0;
}

function recall(name) {
  const found = answers.get(name);
  return found && Date.now() - found.at < KEPT_MS ? found.data : null;
}

function keep(name, data) {
  answers.delete(name);
  answers.set(name, { data, at: Date.now() });
  if (answers.size > MAX_ANSWERS) answers.delete(answers.keys().next().value);
}
