// Keys that work on every page.
import { PAGES } from "../pages/index.js";
import { go, link, route } from "./router.js";
import { createStore } from "./store.js";

export const isHelpOpen = createStore(false);
const SEARCH_BOX = "search-box";
const CHORD_MS = 1500;
let chordUntil = 0;

export function installShortcuts() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    const isChord = performance.now() < chordUntil;
    chordUntil = 0;
    const page = isChord && PAGES.find((each) => each.icon && (each.key ?? each.name[0]) === event.key);
    if (page) go(link(page.name));
    else if (event.key === "/") focusSearch();
    else if (event.key === "?") isHelpOpen.set(true);
    else if (event.key === "g") chordUntil = performance.now() + CHORD_MS;
    else return;
    event.preventDefault();
  });
}

function focusSearch() {
  const box = document.getElementById(SEARCH_BOX);
  if (box) {
    box.focus();
    box.select();
  } else if (route.get().page !== "search") {
    go(link("search"));
  }
}

function isTyping(target) {
  return target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName) && target.type !== "range";
}
