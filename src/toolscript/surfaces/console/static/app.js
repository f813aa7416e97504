// The frame of the console: navigation, the page that the address names, and what lies above all pages.
import { connection, signInByLink } from "./core/api.js";
import { html, render, useEffect, useErrorBoundary, useRef, useState } from "./core/dom.js";
import { installShortcuts } from "./core/shortcuts.js";
import { link, replaceAddress, route } from "./core/router.js";
import { useStore } from "./core/store.js";
import { Icon } from "./parts/icons.js";
import { ShortcutHelp } from "./parts/shortcut_help.js";
import { AccountButton, SignIn } from "./parts/sign_in.js";
import { Empty, Loading, Problem } from "./parts/states.js";
import { ThemeSwitch } from "./parts/theme_switch.js";
import { PAGES } from "./pages/index.js";

function Navigation({ current }) {
  const shown = PAGES.filter((page) => page.icon);
  const chosen = PAGES.find((page) => page.name === current)?.parent ?? current;
  const element = useRef(null);
  useEffect(() => {
    // On small screens the pages are a strip that scrolls.
    element.current.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [chosen]);
  return html`<nav class="nav" aria-label="Pages" ref=${element}>
    <ul>${shown.map((page) => html`<li key=${page.name}>
      <a href=${link(page.name)} aria-current=${page.name === chosen ? "page" : undefined}>
        <${Icon} name=${page.icon} /><span>${page.title}</span></a></li>`)}
    </ul>
  </nav>`;
}

function Page({ page, at }) {
  const [module, setModule] = useState(null);
  const [failure, setFailure] = useState(null);
  const [broken] = useErrorBoundary((error) => console.error(error));
  useEffect(() => {
    let isCurrent = true;
    setModule(null);
    setFailure(null);
    page.load().then((found) => isCurrent && setModule(() => found.default), (error) => isCurrent && setFailure(error));
    return () => { isCurrent = false; };
  }, [page]);
  if (broken) return html`<${Problem} error=${{ message: `This page failed: ${broken.message}. Load it again.` }} />`;
  if (failure) return html`<${Problem} error=${{ status: 0, message: "This page could not be loaded." }} onRetry=${() => location.reload()} />`;
  if (!module) return html`<${Loading} />`;
  const Shown = module;
  return html`<${Shown} at=${at} />`;
}

function Shell() {
  const at = useStore(route);
  const isGone = useStore(connection) === "gone";
  const main = useRef(null);
  const shown = useRef(at.page);
  const page = PAGES.find((each) => each.name === at.page);
  useEffect(() => {
    if (shown.current !== at.page) main.current?.focus({ preventScroll: true });
    shown.current = at.page;
    scrollTo(0, 0);
  }, [at.page, at.rest]);
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>Skip to the content</a>
    <header class="top">
      <a class="brand" href=${link("search")} aria-label="Toolscript"><img src="/console/icon.svg" alt="" width="22" height="22" /><span>Toolscript</span></a>
      <${Navigation} current=${at.page} />
      <div class="top-end"><${AccountButton} /><${ThemeSwitch} /></div>
    </header>
    <main id="main" tabindex="-1" ref=${main}>
      ${isGone && html`<p class="banner" role="status">The gateway does not answer. Trying again every second.</p>`}
      ${page ? html`<${Page} page=${page} at=${at} key=${page.name} />` : html`<${Empty} title="There is no such page">
        <a href=${link("search")}>Go to the search</a></${Empty}>`}
    </main>
    <${SignIn} /><${ShortcutHelp} />`;
}

/** Signs in with a link of `toolscript open`, also one that is pasted into a tab that shows the page already. */
async function signInFromAddress() {
  const { page, query } = route.get();
  if (page !== "sign-in") return;
  replaceAddress(link("search"));  // no code is left in the history
  route.set({ page: "search", rest: "", query: new URLSearchParams() });
  await signInByLink(query.get("code") ?? "");
}

installShortcuts();
await signInFromAddress();
route.subscribe(signInFromAddress);
const root = document.getElementById("app");
root.replaceChildren();
render(html`<${Shell} />`, root);
