// Draws the points on a canvas, and follows the mouse.
import { PointPicture, parseColour } from "./stamps.js";

const RADIUS = 3.2;
const NEAR = 9;
const MARGIN = 24;
const KEY_STEP = 40;
const [FADED, CLEAR] = [0.14, 0.9];
const COLOURS = 10;

function tracePath(points) {
  const path = new Path2D();
  points.forEach(([x, y], i) => (i ? path.lineTo(x, y) : path.moveTo(x, y)));
  path.closePath();
  return path;
}

export class MapView {
  constructor(canvas, { onHover, onOpen, onSelect }) {
    Object.assign(this, { canvas, onHover, onOpen, onSelect, tools: [], links: [], isMarked: null, lasso: null, chosen: new Set(), scale: 1, left: 0, top: 0, order: [] });
    this.context = canvas.getContext("2d");
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(canvas);
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.control = new AbortController();
    const { signal } = this.control;
    const on = (name, handle, options) => canvas.addEventListener(name, handle.bind(this), { signal, ...options });
    on("wheel", this.zoom, { passive: false });
    on("pointerdown", this.press);
    on("pointermove", this.move);
    on("pointerup", this.release);
    on("pointerleave", () => this.hover(null));
    on("keydown", this.steer);
    this.scheme.addEventListener("change", () => this.readColours(), { signal });
    this.themes = new MutationObserver(() => this.readColours());
    this.themes.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  }

  close() {
    this.control.abort();
    this.watcher.disconnect();
    this.themes.disconnect();
  }

  show(tools, duplicates) {
    this.tools = tools;
    const byId = new Map(tools.map((tool) => [tool.id, tool]));
    this.links = duplicates.map(({ tool_ids: [a, b] }) => [byId.get(a), byId.get(b)]).filter(([a, b]) => a && b);
    this.chosen = new Set([...this.chosen].map((tool) => byId.get(tool.id)).filter(Boolean));
    this.sort();
  }

  /** Puts what is drawn in each frame into lists of numbers: faded points first, so that the others lie above them. */
  sort() {
    const isFaded = (tool) => (this.isMarked && !this.isMarked(tool)) || (this.chosen.size > 0 && !this.chosen.has(tool));
    const faded = this.tools.filter(isFaded);
    this.order = faded.length ? [...faded, ...this.tools.filter((tool) => !isFaded(tool))] : this.tools;
    this.faded = faded.length;
    this.xs = Float64Array.from(this.order, (tool) => tool.x);
    this.ys = Float64Array.from(this.order, (tool) => tool.y);
    this.sizes = Float64Array.from(this.order, (tool) => RADIUS + Math.min(7, 1.6 * Math.log1p(tool.calls)));
    this.draw();
  }

  readColours() {
    const style = getComputedStyle(this.canvas);
    this.colours = Array.from({ length: COLOURS }, (_, i) => parseColour(style.getPropertyValue(`--skill-${i}`)));
    this.linkColour = style.getPropertyValue("--link");
    this.lassoColour = style.getPropertyValue("--skill-1");
    this.picture?.forget();
    this.draw();
  }

  mark(isMarked) {
    this.isMarked = isMarked;
    this.sort();
  }

  choose(tools) {
    this.chosen = new Set(tools);
    this.onSelect(tools);
    this.sort();
  }

  /** Chooses what the window of the map shows, without what is faded by words. */
  chooseShown() {
    this.choose(this.tools.filter((tool) => {
      const [x, y] = this.place(tool);
      return x >= 0 && y >= 0 && x <= this.width && y <= this.height && (!this.isMarked || this.isMarked(tool));
    }));
  }

  reset() {
    Object.assign(this, { scale: 1, left: 0, top: 0 });
    this.draw();
  }

  resize() {
    const { width, height } = this.canvas.getBoundingClientRect();
    const dots = devicePixelRatio || 1;
    Object.assign(this, { width, height, dots });
    this.canvas.width = width * dots;
    this.canvas.height = height * dots;
    this.picture = new PointPicture(this.canvas.width, this.canvas.height);
    this.readColours();
  }

  draw() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.paint();
    });
  }

  /** Where a tool is: its coordinates times the first two numbers, plus the others. */
  frameOf() {
    const { width, height, scale } = this;
    return [(width / 2 - MARGIN) * scale, (height / 2 - MARGIN) * scale, width / 2 + this.left * scale, height / 2 + this.top * scale];
  }

  place(tool) {
    const [kx, ky, ox, oy] = this.frameOf();
    return [tool.x * kx + ox, tool.y * ky + oy];
  }

  paint() {
    if (!this.width) return;
    const { context, picture, dots } = this;
    const grow = dots * Math.min(2, Math.sqrt(this.scale));
    const [kx, ky, ox, oy] = this.frameOf();
    picture.clear();
    for (let i = 0; i < this.order.length; i += 1) {
      const stamp = picture.findStamp(grow * this.sizes[i], this.colours, this.order[i].colour, i < this.faded ? FADED : CLEAR);
      picture.add((this.xs[i] * kx + ox) * dots, (this.ys[i] * ky + oy) * dots, stamp);
    }
    context.putImageData(picture.image, 0, 0);
    context.setTransform(dots, 0, 0, dots, 0, 0);
    this.paintLinks();
    if (!this.lasso) return;
    context.strokeStyle = this.lassoColour;
    context.stroke(tracePath(this.lasso));
  }

  paintLinks() {
    const { context, width, height } = this;
    context.strokeStyle = this.linkColour;
    context.beginPath();
    for (const [a, b] of this.links) {
      const [[ax, ay], [bx, by]] = [this.place(a), this.place(b)];
      if (Math.max(ax, bx) < 0 || Math.min(ax, bx) > width || Math.max(ay, by) < 0 || Math.min(ay, by) > height) continue;
      context.moveTo(ax, ay);
      context.lineTo(bx, by);
    }
    context.stroke();
  }

  find(x, y) {
    const [kx, ky, ox, oy] = this.frameOf();
    let best = [NEAR * NEAR, null];
    for (let i = 0; i < this.order.length; i += 1) {
      const far = (this.xs[i] * kx + ox - x) ** 2 + (this.ys[i] * ky + oy - y) ** 2;
      if (far < best[0]) best = [far, this.order[i]];
    }
    return best[1];
  }

  hover(tool) {
    if (tool === this.hovered) return;
    this.hovered = tool;
    this.canvas.style.cursor = tool ? "pointer" : "grab";
    this.onHover(tool);
  }

  zoom(event) {
    event.preventDefault();
    this.zoomTo(this.scale * Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY);
  }

  zoomTo(wanted, x = this.width / 2, y = this.height / 2) {
    const scale = Math.min(60, Math.max(0.7, wanted));
    const [dx, dy] = [x - this.width / 2, y - this.height / 2];
    this.left += dx / scale - dx / this.scale;
    this.top += dy / scale - dy / this.scale;
    this.scale = scale;
    this.draw();
  }

  steer(event) {
    const step = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (step) {
      this.left += (step[0] * KEY_STEP) / this.scale;
      this.top += (step[1] * KEY_STEP) / this.scale;
      this.draw();
    } else if (event.key === "+") this.zoomTo(this.scale * 1.3);
    else if (event.key === "-") this.zoomTo(this.scale / 1.3);
    else if (event.key === "c") this.chooseShown();
    else if (event.key === "Escape") this.choose([]);
    else return;
    event.preventDefault();
  }

  press(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.start = [event.offsetX, event.offsetY, this.left, this.top];
    if (event.shiftKey) this.lasso = [[event.offsetX, event.offsetY]];
  }

  move(event) {
    if (this.lasso) this.lasso.push([event.offsetX, event.offsetY]);
    else if (this.start) {
      this.left = this.start[2] + (event.offsetX - this.start[0]) / this.scale;
      this.top = this.start[3] + (event.offsetY - this.start[1]) / this.scale;
    } else {
      this.hover(this.find(event.offsetX, event.offsetY));
      return;
    }
    this.draw();
  }

  release(event) {
    const { start, lasso } = this;
    Object.assign(this, { start: null, lasso: null });
    if (lasso) {
      const path = tracePath(lasso);
      this.context.setTransform(1, 0, 0, 1, 0, 0);
      const inside = this.tools.filter((tool) => this.context.isPointInPath(path, ...this.place(tool)));
      this.choose(inside);
    } else if (start && Math.hypot(event.offsetX - start[0], event.offsetY - start[1]) < 4) {
      const tool = this.find(event.offsetX, event.offsetY);
      if (tool) this.onOpen(tool);
    }
  }
}
