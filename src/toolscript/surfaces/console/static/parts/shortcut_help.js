import { html } from "../core/dom.js";
import { isHelpOpen } from "../core/shortcuts.js";
import { useStore } from "../core/store.js";
import { PAGES } from "../pages/index.js";
import { Dialog } from "./dialog.js";

const KEYS = [
  [["/"], "Search"],
  [["↑", "↓"], "Move through the results"],
  [["Enter"], "Open the result"],
  [["Esc"], "Empty the search box, or close a dialog"],
  [["?"], "Show this list"],
];

export function ShortcutHelp() {
  const isOpen = useStore(isHelpOpen);
  const pages = PAGES.filter((page) => page.icon).map((page) => [["g", page.key ?? page.name[0]], page.title]);
  const rows = ([keys, meaning]) => html`<div key=${meaning}><dt>${keys.map((key) => html`<kbd>${key}</kbd>`)}</dt><dd>${meaning}</dd></div>`;
  return html`<${Dialog} isOpen=${isOpen} onClose=${() => isHelpOpen.set(false)} title="Keys">
    <dl class="keys">${KEYS.map(rows)}${pages.map(rows)}</dl>
  </${Dialog}>`;
}
