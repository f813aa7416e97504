// The one place that knows which library draws the pages.
import { Fragment, h, render } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export { Fragment, render };
export { useCallback, useEffect, useErrorBoundary, useLayoutEffect, useMemo, useRef, useState } from "../vendor/hooks.js";
export const html = htm.bind(h);
