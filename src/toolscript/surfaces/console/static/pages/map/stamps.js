// Puts many round points into the pixels of a picture. The canvas's own circles and pictures take ten times as long where
// no graphics card helps.

export function parseColour(text) {
  const [red = 128, green = 128, blue = 128] = (text.match(/[\d.]+/g) ?? []).map(Number);
  return [red, green, blue];
}

/** The pixels of a circle, by their distance from its centre in the list of a picture's pixels: those that it covers by
 * half or more, and those of its edge. Typed lists, because a frame has half a million of them. */
function makeStamp(radius, [red, green, blue], opacity, width) {
  const reach = Math.ceil(radius + 1);
  const lists = { solid: [], edge: [] };
  for (let y = -reach; y <= reach; y += 1) {
    for (let x = -reach; x <= reach; x += 1) {
      const covered = Math.min(1, Math.max(0, radius + 0.5 - Math.hypot(x, y)));
      if (covered <= 0.05) continue;
      const alpha = Math.round(255 * opacity * covered);
      lists[covered > 0.5 ? "solid" : "edge"].push([x, y, ((alpha << 24) | (blue << 16) | (green << 8) | red) >>> 0]);
    }
  }
  const pack = (list) => ({
    x: Int32Array.from(list, ([x]) => x),
    y: Int32Array.from(list, ([, y]) => y),
    at: Int32Array.from(list, ([x, y]) => y * width + x),
    value: Uint32Array.from(list, ([, , value]) => value),
  });
  return { reach, solid: pack(lists.solid), edge: pack(lists.edge) };
}

export class PointPicture {
  constructor(width, height) {
    this.image = new ImageData(Math.max(1, width), Math.max(1, height));
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.stamps = new Map();
  }

  clear() {
    this.pixels.fill(0);
  }

  /** Forgets the stamps: the colours have changed. */
  forget() {
    this.stamps.clear();
  }

  /** The stamp of a radius, in half pixels, and the number of a colour. */
  findStamp(radius, colours, number, opacity) {
    const halves = Math.round(2 * radius);
    const key = (halves * 64 + number) * 128 + Math.round(100 * opacity);
    let stamp = this.stamps.get(key);
    if (!stamp) {
      stamp = makeStamp(halves / 2, colours[number], opacity, this.image.width);
      this.stamps.set(key, stamp);
    }
    return stamp;
  }

  /** Adds a point; where it covers half of a pixel that has a colour already, its own wins. */
  add(x, y, { reach, solid, edge }) {
    const { width, height } = this.image;
    const [left, top] = [Math.round(x), Math.round(y)];
    if (left < -reach || top < -reach || left >= width + reach || top >= height + reach) return;
    if (left < reach || top < reach || left >= width - reach || top >= height - reach) {
      this.addCut(left, top, solid, true);
      this.addCut(left, top, edge, false);
      return;
    }
    const { pixels } = this;
    const base = top * width + left;
    for (let i = 0; i < solid.at.length; i += 1) pixels[base + solid.at[i]] = solid.value[i];
    for (let i = 0; i < edge.at.length; i += 1) {
      const at = base + edge.at[i];
      if (edge.value[i] >>> 24 > pixels[at] >>> 24) pixels[at] = edge.value[i];
    }
  }

  /** Adds those pixels of a point that are inside of the picture. */
  addCut(left, top, { x, y, value }, isSolid) {
    const { width, height } = this.image;
    for (let i = 0; i < value.length; i += 1) {
      const [px, py] = [left + x[i], top + y[i]];
      if (px < 0 || py < 0 || px >= width || py >= height) continue;
      const at = py * width + px;
      if (isSolid || value[i] >>> 24 > this.pixels[at] >>> 24) this.pixels[at] = value[i];
    }
  }
}
