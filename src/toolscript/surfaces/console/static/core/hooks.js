// What pages do with requests: load while shown, cancel when left, read again when the gateway is back.
import { ask, credentials, epoch } from "./api.js";
import { useCallback, useEffect, useRef, useState } from "./dom.js";
import { useStore } from "./store.js";

const REPEAT_MS = 2000;

/** Loads from a path, or nothing while it is null: `{data, error, loading, reload}`. Old data stays until new comes.
 * It is read again `every` so many milliseconds, and with a new `version`. */
export function useApi(path, { method = "GET", body, every = 0, version = 0 } = {}) {
  const [state, setState] = useState({ data: null, error: null, loading: Boolean(path) });
  const [count, setCount] = useState(0);
  const age = useStore(epoch);
  const sent = body === undefined ? undefined : JSON.stringify(body);
  useEffect(() => {
    if (!path) {
      setState({ data: null, error: null, loading: false });
      return undefined;
    }
    const control = new AbortController();
    let timer = null;
    setState((old) => ({ ...old, loading: true }));
    const run = () => ask(method, path, { signal: control.signal, body: sent === undefined ? undefined : JSON.parse(sent) }).then(
      (data) => control.signal.aborted || setState({ data, error: null, loading: false }),
      (error) => {
        if (control.signal.aborted) return;
        setState((old) => ({ data: old.data, error, loading: false }));
        if (error.status === 503) timer = setTimeout(run, REPEAT_MS);  // it is starting
      },
    );
    run();
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [path, method, sent, age, count, version]);
  const reload = useCallback(() => setCount((n) => n + 1), []);
  const busy = useRef(false);
  busy.current = state.loading;
  useEffect(() => {
    if (!every) return undefined;
    const timer = setInterval(() => document.hidden || busy.current || reload(), every);
    return () => clearInterval(timer);
  }, [every, reload]);
  return { ...state, reload };
}

/** Whether documents can be used: with credentials, or by the owner of this machine; null while that is not known. */
export function useDocumentsAllowed() {
  const isSignedIn = Boolean(Object.values(useStore(credentials)).some(Boolean));
  const { data, error } = useApi(isSignedIn ? null : "/documents?limit=1");
  if (isSignedIn || data) return true;
  return error ? false : null;
}

/** Runs one action at a time: `[run, {busy, error}]`. */
export function useAction(action) {
  const [state, setState] = useState({ busy: false, error: null });
  const latest = useRef(action);
  latest.current = action;
  const run = useCallback(async (...given) => {
    setState({ busy: true, error: null });
    try {
      const result = await latest.current(...given);
      setState({ busy: false, error: null });
      return result;
    } catch (error) {
      setState({ busy: false, error });
      return undefined;
    }
  }, []);
  return [run, state];
}

/** Sets the title of the tab. */
export function useTitle(title) {
  useEffect(() => {
    document.title = title ? `${title} · Toolscript` : "Toolscript";
  }, [title]);
}
