// The end of a server's log. It is read again when the server has written something.
import { html, useLayoutEffect, useRef } from "../../core/dom.js";
import { useApi } from "../../core/hooks.js";
import { Loaded } from "../../parts/states.js";
import { visible } from "../../parts/text.js";

const time = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
// Whoever has scrolled further up than this is reading, and must not be moved.
const NEAR_END = 24;

export function ServerLog({ server }) {
  const log = useApi(`/api/v1/servers/${encodeURIComponent(server.name)}/log`, { version: server.logLines });
  return html`<section aria-label="Log"><h3>Log</h3>
    ${server.transport !== "stdio" && html`<p class="muted">It runs elsewhere: these are ${server.transport === "openapi" ? "its calls" : "the log messages that it sends"}, and the gateway's notes.</p>`}
    <${Loaded} from=${log} rows=${3}>${({ lines }) => lines.length === 0 ? html`<p class="muted">Nothing yet.</p>` : html`<${Lines} lines=${lines} />`}</${Loaded}>
  </section>`;
}

function Lines({ lines }) {
  const element = useRef(null);
  const isAtEnd = useRef(true);
  useLayoutEffect(() => {
    if (isAtEnd.current) element.current.scrollTop = element.current.scrollHeight;
  }, [lines]);
  const note = ({ target }) => {
    isAtEnd.current = target.scrollHeight - target.scrollTop - target.clientHeight < NEAR_END;
  };
  return html`<div class="log mono" tabindex="0" role="log" aria-label="Lines of the log" ref=${element} onScroll=${note}>
    ${lines.map((line, i) => html`<p key=${i} class=${`by-${line.source}`}><time datetime=${line.time}>${time.format(new Date(line.time))}</time> <bdi>${visible(line.text)}</bdi></p>`)}</div>`;
}
