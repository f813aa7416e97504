// Addresses of pages lie behind the #: the server serves one page only.
import { createStore } from "./store.js";

export const route = createStore(parse(location.hash));
let shown = location.hash;
addEventListener("hashchange", () => {
  shown = location.hash;
  route.set(parse(shown));
});

function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [page, ...rest] = path.split("/");
  return { page: page || "search", rest: rest.map(decodeURIComponent).join("/"), query: new URLSearchParams(query) };
}

/** The address of a page: `link("tool", "git__commit")`. Empty parameters are left out. */
export function link(page, rest = "", parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value != null));
  return `#/${page}${rest ? `/${encodeURIComponent(rest)}` : ""}${query.size ? `?${query}` : ""}`;
}

export function go(address) {
  location.hash = address.replace(/^#/, "");
}

/** Changes the address without a step in the history: for what one types. A step whose event is still to come wins. */
export function replaceAddress(address) {
  if (location.hash !== shown || shown === address) return;
  history.replaceState(null, "", address);
  shown = location.hash;
}
