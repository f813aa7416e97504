// A dialog of the browser: it keeps the focus inside, and Escape closes it.
import { html, useEffect, useRef } from "../core/dom.js";

export function Dialog({ isOpen, onClose, title, children }) {
  const element = useRef(null);
  const expected = useRef(0);  // events of closing it here: it may be open again when they come
  useEffect(() => {
    const dialog = element.current;
    if (isOpen && !dialog.open) dialog.showModal();
    if (!isOpen && dialog.open) {
      expected.current += 1;
      dialog.close();
    }
  }, [isOpen]);
  const noteClosed = () => {
    if (expected.current) expected.current -= 1;
    else onClose();
  };
  return html`<dialog ref=${element} class="dialog" aria-label=${title} onClose=${noteClosed}>
    ${isOpen && html`<div class="dialog-head"><h2>${title}</h2>
      <button type="button" class="button quiet" onClick=${onClose} aria-label="Close">✕</button></div>${children}`}
  </dialog>`;
}
