// Who may do what: calls that wait for a person's approval, and keys. For the signed-in owner and for administrators.
import { html } from "../core/dom.js";
import { useApi, useTitle } from "../core/hooks.js";
import { Loading, Problem } from "../parts/states.js";
import { Approvals } from "./access/approvals.js";
import { Keys } from "./access/keys.js";

const EVERY_MS = 3000;

export default function AccessPage() {
  useTitle("Access");
  const calls = useApi("/api/v1/approvals");
  return html`<div class="page-head"><h1>Access</h1><p>Calls that wait for approval, and keys</p></div>
    ${calls.error ? html`<${Problem} error=${calls.error} onRetry=${calls.reload} />` : !calls.data ? html`<${Loading} rows=${6} />`
      : html`<${Approvals} every=${EVERY_MS} /><${Keys} />`}`;
}
