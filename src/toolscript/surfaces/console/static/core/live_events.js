// Server-sent events over fetch: the browser's own EventSource cannot send a key.
import { connection, epoch, send } from "./api.js";
import { useEffect, useState } from "./dom.js";
import { useStore } from "./store.js";

const RETRY_MS = 2000;

async function* readEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    pending += value;
    const events = pending.split("\n\n");
    pending = events.pop();
    for (const event of events) {
      const data = event.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (data) yield JSON.parse(data);
    }
  }
}

/** The newest event of a path: `{data, error, loading, reload}`. Connects again when the stream ends. */
export function useEvents(path) {
  const [state, setState] = useState({ data: null, error: null, loading: true });
  const [count, setCount] = useState(0);
  const age = useStore(epoch);
  useEffect(() => {
    const control = new AbortController();
    let timer = null;
    const follow = async () => {
      try {
        const response = await send("GET", path, { signal: control.signal, headers: { Accept: "text/event-stream" } });
        for await (const data of readEvents(response)) setState({ data, error: null, loading: false });
      } catch (error) {
        if (control.signal.aborted) return;
        if (error.status) setState((old) => ({ data: error.status === 503 ? old.data : null, error, loading: false }));
        if (error.status === 401 || error.status === 403) return;
      }
      if (!control.signal.aborted && connection.get() === "ok") timer = setTimeout(follow, RETRY_MS);
    };
    follow();
    return () => {
      clearTimeout(timer);
      control.abort();
    };
  }, [path, age, count]);
  return { ...state, reload: () => setCount(count + 1) };
}
