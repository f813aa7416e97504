// Text from servers, shown as it is: never as HTML, with characters made visible that would hide or turn round others.
import { html, useState } from "../core/dom.js";

// Controls (not tab and newline), zero-width and bidirectional characters, private tags.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}]/gu;

export function visible(text) {
  return String(text ?? "").replace(HIDDEN, (c) => `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** One line or paragraph, cut after `max` characters. */
export function Text({ value, max = 300 }) {
  const text = String(value ?? "");
  const cut = text.length > max ? `${text.slice(0, max)}…` : text;
  return html`<bdi>${visible(cut)}</bdi>`;
}

/** A long text, of which the rest is shown on demand. */
export function LongText({ value, max = 1200, mono = false }) {
  const [all, setAll] = useState(false);
  const text = String(value ?? "");
  const isLong = text.length > max;
  return html`
    <div class=${mono ? "long mono" : "long"} tabindex=${all && isLong ? 0 : undefined}>
      <bdi>${visible(isLong && !all ? text.slice(0, max) : text)}</bdi>
      ${isLong && html`${all ? " " : "… "}<button type="button" class="linklike" onClick=${() => setAll(!all)}>
        ${all ? "Show less" : `Show all ${text.length.toLocaleString("en")} characters`}</button>`}
    </div>`;
}
