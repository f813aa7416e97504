import { html, useState } from "../core/dom.js";
import { Icon } from "./icons.js";

const THEMES = ["auto", "light", "dark"];
const NAMES = { auto: "as the system", light: "light", dark: "dark" };

export function ThemeSwitch() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? "auto");
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  const change = () => {
    if (next === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem("toolscript.theme", next);
    } catch { /* it lasts until the page is left */ }
    setTheme(next);
  };
  const label = `Colours: ${NAMES[theme]}. Change to ${NAMES[next]}`;
  return html`<button type="button" class="button quiet" onClick=${change} title=${label} aria-label=${label}><${Icon} name=${theme} /></button>`;
}
