// The logins of the person who is signed in, at servers where every user has one.
import { html, useEffect, useState } from "../../core/dom.js";
import { useApi } from "../../core/hooks.js";
import { Text } from "../../parts/text.js";
import { describeLogin, describeLogout, Login, Logout, ownLogin } from "./login.js";

const WAITING_MS = 2000;

export function OwnLogins() {
  const [begun, setBegun] = useState([]);
  const { data, reload } = useApi("/api/v1/own-logins", { every: begun.length ? WAITING_MS : 0 });
  useEffect(() => {
    const missing = new Set(data?.servers.filter((login) => !login.loggedIn && !login.problem).map((login) => login.server));
    setBegun((servers) => servers.filter((server) => missing.has(server)));
  }, [data]);
  if (!data?.servers.length) return null;  // most gateways have no such server, and some keys may not call
  return html`<section class="section" aria-label="Your logins"><div class="section-head"><h2>Your logins</h2></div>
    <p class="muted">At these servers your calls use your own login. Nobody else can use it.</p>
    <ul class="card rows own-logins">${data.servers.map((login) => html`<${OwnLogin} key=${login.server} login=${login} onBegun=${() => setBegun((servers) => [...servers, login.server])} onChange=${reload} />`)}</ul>
  </section>`;
}

function OwnLogin({ login, onBegun, onChange }) {
  const [done, setDone] = useState("");
  const path = ownLogin(login.server);
  const finish = (revoked) => {
    setDone(describeLogout(revoked));
    onChange();
  };
  return html`<li class="own-login">
    <p><strong><${Text} value=${login.server} max=${80} /></strong> <span class="muted">${describeLogin(login)}</span> <span role="status" class="muted">${!login.loggedIn && done}</span></p>
    ${login.loggedIn || login.problem
      ? html`<${Logout} path=${path} server=${login.server} effect="Your calls to its tools fail until you log in again." onDone=${finish} />`
      : html`<${Login} path=${path} effect="Your calls use the login then." onBegun=${onBegun} />`}
  </li>`;
}
