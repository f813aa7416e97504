// Draws the points on a canvas, and follows the mouse.
import { PointPicture, parseColour } from "./stamps.js";

const RADIUS = 3.2;
const NEAR = 9;
const MARGIN = 24;
const KEY_STEP = 40;

function tracePath(points) {
  const path = new Path2D();
  points.forEach(([x, y], i) => (i ? path.lineTo(x, y) : path.moveTo(x, y)));
  path.closePath();
  return path;
}

export class MapView {
  constructor(canvas, { onHover, onOpen, onSelect }) {
    Object.assign(this, { canvas, onHover, onOpen, onSelect, tools: [], links: [], isMarked: null, lasso: null, chosen: new Set(), scale: 1, left: 0, top: 0 });
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
    this.scheme.addEventListener("change", () => this.draw(), { signal });
    this.themes = new MutationObserver(() => this.draw());
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
    this.draw();
  }

  mark(isMarked) {
    this.isMarked = isMarked;
    this.draw();
  }

  clear() {
    this.chosen = new Set();
    this.draw();
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
    this.draw();
  }

  draw() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.paint();
    });
  }

  place(tool) {
    const [w, h] = [this.width / 2 - MARGIN, this.height / 2 - MARGIN];
    return [this.width / 2 + (tool.x * w + this.left) * this.scale, this.height / 2 + (tool.y * h + this.top) * this.scale];
  }

  paint() {
    if (!this.width) return;
    const { context } = this;
    const style = getComputedStyle(this.canvas);
    const colours = Array.from({ length: 10 }, (_, i) => parseColour(style.getPropertyValue(`--skill-${i}`)));
    const grow = this.dots * Math.min(2, Math.sqrt(this.scale));
    const draw = (tool, opacity) => {
      const [x, y] = this.place(tool);
      const radius = grow * (RADIUS + Math.min(7, 1.6 * Math.log1p(tool.calls)));
      this.picture.add(x * this.dots, y * this.dots, radius, colours[tool.colour], opacity);
    };
    const isFaded = (tool) => (this.isMarked && !this.isMarked(tool)) || (this.chosen.size > 0 && !this.chosen.has(tool));
    this.picture.clear();
    const front = [];
    for (const tool of this.tools) isFaded(tool) ? draw(tool, 0.14) : front.push(tool);
    for (const tool of front) draw(tool, 0.9);
    context.putImageData(this.picture.image, 0, 0);
    context.setTransform(this.dots, 0, 0, this.dots, 0, 0);
    context.strokeStyle = style.getPropertyValue("--link");
    context.beginPath();
    for (const [a, b] of this.links) {
      context.moveTo(...this.place(a));
      context.lineTo(...this.place(b));
    }
    context.stroke();
    if (this.lasso) this.paintLasso(style);
  }

  paintLasso(style) {
    this.context.strokeStyle = style.getPropertyValue("--skill-1");
    this.context.stroke(tracePath(this.lasso));
  }

  find(x, y) {
    let best = [NEAR * NEAR, null];
    for (const tool of this.tools) {
      const [a, b] = this.place(tool);
      const far = (a - x) ** 2 + (b - y) ** 2;
      if (far < best[0]) best = [far, tool];
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
      this.chosen = new Set(inside);
      this.onSelect(inside);
      this.draw();
    } else if (start && Math.hypot(event.offsetX - start[0], event.offsetY - start[1]) < 4) {
      const tool = this.find(event.offsetX, event.offsetY);
      if (tool) this.onOpen(tool);
    }
  }
}
