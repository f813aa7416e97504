// Puts many round points into the pixels of a picture. The canvas's own circles and pictures take ten times as long where
// no graphics card helps.
const stamps = new Map();

/** The pixels of a circle: their offsets from its centre, and how much of each is covered. */
function findStamp(radius) {
  const size = Math.round(2 * radius) / 2;
  if (!stamps.has(size)) {
    const pixels = [];
    const reach = Math.ceil(size + 1);
    for (let y = -reach; y <= reach; y += 1) {
      for (let x = -reach; x <= reach; x += 1) {
        const covered = Math.min(1, Math.max(0, size + 0.5 - Math.hypot(x, y)));
        if (covered > 0.05) pixels.push([x, y, covered]);
      }
    }
    stamps.set(size, pixels);
  }
  return stamps.get(size);
}

export function parseColour(text) {
  const [red = 128, green = 128, blue = 128] = (text.match(/[\d.]+/g) ?? []).map(Number);
  return [red, green, blue];
}

export class PointPicture {
  constructor(width, height) {
    this.image = new ImageData(Math.max(1, width), Math.max(1, height));
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  clear() {
    this.pixels.fill(0);
  }

  /** Adds a point; where it covers half of a pixel that has a colour already, its own wins. */
  add(x, y, radius, [red, green, blue], opacity) {
    const { width, height } = this.image;
    const [left, top] = [Math.round(x), Math.round(y)];
    const colour = (blue << 16) | (green << 8) | red;
    for (const [dx, dy, covered] of findStamp(radius)) {
      const [px, py] = [left + dx, top + dy];
      if (px < 0 || py < 0 || px >= width || py >= height) continue;
      const at = py * width + px;
      const alpha = Math.round(255 * opacity * covered);
      if (covered > 0.5 || alpha > this.pixels[at] >>> 24) this.pixels[at] = ((alpha << 24) | colour) >>> 0;
    }
  }
}
