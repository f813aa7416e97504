// Icons of 16 by 16, drawn with the colour of the text.
import { html } from "../core/dom.js";

const PATHS = {
  search: "M7 12.2A5.2 5.2 0 1 0 7 1.8a5.2 5.2 0 0 0 0 10.4ZM10.8 10.8 14.4 14.4",
  tools: "M2 4.5h12M2 8h12M2 11.5h8",
  servers: "M2.5 2.5h11v4h-11zM2.5 9.5h11v4h-11zM5 4.5h.01M5 11.5h.01",
  files: "M4 1.8h5.2L12.5 5v9.2H4zM9 2v3.2h3.3",
  calls: "M1.5 8h3l2-5 3 10 2-5h3",
  skills: "M8 1.8v3.4M8 8.4V5.2M3.5 14.2v-3.4a2 2 0 0 1 2-2h5a2 2 0 0 1 2 2v3.4M8 8.8v5.4",
  health: "M8 13.6 2.6 8.3a3.3 3.3 0 0 1 4.7-4.7l.7.7.7-.7a3.3 3.3 0 0 1 4.7 4.7z",
  quality: "M2 14V9.5M6 14V6M10 14V8M14 14V2.5",
  map: "M3.5 4.5h.01M7 9.5h.01M11.5 3h.01M13 9h.01M9 13h.01M4 12.5h.01M8 5.5h.01",
  key: "M10.3 9.4a3.7 3.7 0 1 0-3.5-2.6L2 11.6V14h2.6v-1.6h1.6v-1.6h1.3l.9-.9c.6.3 1.2.4 1.9.4ZM11.2 5h.01",
  light: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM8 1.2v1.4M8 13.4v1.4M1.2 8h1.4M13.4 8h1.4M3.2 3.2l1 1M11.8 11.8l1 1M12.8 3.2l-1 1M4.2 11.8l-1 1",
  dark: "M13.5 9.8A5.9 5.9 0 0 1 6.2 2.5a5.9 5.9 0 1 0 7.3 7.3Z",
  auto: "M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12",
  right: "M3 8.5 6.5 12 13 4.5",
  wrong: "M4 4l8 8M12 4l-8 8",
};

export function Icon({ name }) {
  return html`<svg class=${`icon icon-${name}`} viewBox="0 0 16 16" aria-hidden="true" focusable="false"><path d=${PATHS[name]} /></svg>`;
}
