// The bars. Each row is reduced to one paint class a pixel column: segments narrower than a pixel
// merge, and the column shows what took most of its time; wider ones are drawn as they are. So the
// work depends on the segments in view, and the picture on the pixels only.

const PAINT = { NONE: 0, QUEUE: 1, PREFILL: 2, WAIT_PREFILL: 3, WAIT_DECODE: 4, DECODE: 5,
  DECODE_MID: 6, DECODE_SLOW: 7, PAUSE: 8, WAIT_END: 9, FIRST_TOKEN: 10, MIXED: 11 };
const PAINT_COLOURS = [null, "--queue", "--prefill", "--wait-prefill", "--wait-decode", "--decode",
  "--decode-mid", "--decode-slow", "--pause", "--wait-end", "--first-token", "--mixed"];
// Share of the row's height: waiting is thin, work is high. Colour is not the only sign.
const PAINT_HEIGHT = [0, .3, .8, .3, .3, .8, .8, .8, .55, .3, .8, .8];
const PAINT_BANDS = [.3, .55, .8];
const STEP_PAINT = [PAINT.PREFILL, PAINT.DECODE, PAINT.MIXED];
const STEP_TITLES = ["Prefill step", "Decode step", "Prefill and decode step"];
const BORDER = 0x80; // Flag of a pixel column that ends a segment wide enough to show its end.

function paintClass(kind, ns, head) {
  if (kind === KIND.DECODE || kind === KIND.TOKEN) return thresholdClass(ns, head.thresholds_ms);
  return [PAINT.QUEUE, PAINT.PREFILL, PAINT.WAIT_PREFILL, PAINT.WAIT_DECODE, 0, PAINT.PAUSE,
    PAINT.WAIT_END, PAINT.FIRST_TOKEN][kind];
}

function cssColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function packedColours() {
  const packed = new Uint32Array(256);
  PAINT_COLOURS.forEach((name, paint) => {
    if (!name) return;
    const value = parseInt(cssColour(name).slice(1), 16);
    const red = value >> 16, green = (value >> 8) & 255, blue = value & 255;
    packed[paint] = (255 << 24 | blue << 16 | green << 8 | red) >>> 0;
    packed[paint | BORDER] = (110 << 24 | blue << 16 | green << 8 | red) >>> 0;
  });
  return packed;
}

// Fills `out` with a paint class a pixel; answers how many segments were in view.
function rasterRow(model, row, from, perPixel, out, weights) {
  const width = out.length, to = from + perPixel * width;
  const low = model.first[row], high = model.first[row + 1];
  if (low === high || model.finish[row] < from || model.arrival[row] > to) return 0;
  let segment = Math.max(low, lastNotAbove(model.start, from, low, high));
  const begin = segment;
  let pending = -1;
  const flush = () => {
    if (pending < 0) return;
    let best = 0;
    for (let paint = 1; paint < weights.length; paint++) {
      if (weights[paint] > weights[best]) best = paint;
    }
    out[pending] = best;
    weights.fill(0);
    pending = -1;
  };
  for (; segment < high && model.start[segment] <= to; segment++) {
    const x0 = Math.max(0, (model.start[segment] - from) / perPixel);
    const x1 = Math.min(width, (model.end[segment] - from) / perPixel);
    if (x1 <= x0) continue;
    const paint = model.paint[segment], c0 = Math.floor(x0), c1 = Math.floor(x1);
    if (c0 !== pending) { flush(); pending = c0; }
    weights[paint] += Math.min(x1, c0 + 1) - x0;
    if (c1 === c0) continue;
    flush();
    out.fill(paint, c0 + 1, c1);
    if (x1 - x0 >= 4 && c1 - 1 > c0) out[c1 - 1] |= BORDER;
    if (c1 < width) { pending = c1; weights[paint] += x1 - c1; }
  }
  flush();
  return segment - begin;
}

function countRuns(classes) {
  let runs = 0;
  for (let i = 0; i < classes.length; i++) {
    const ends = classes[i] & BORDER;
    if (classes[i] && (ends || i + 1 === classes.length || classes[i + 1] % BORDER !== classes[i])) runs++;
  }
  return runs;
}

// Vertical extent of a row in device pixels; at least one line.
function rowLines(place, view, rowHeight, height) {
  const middle = (place - view.top) * rowHeight;
  const top = Math.floor(middle - rowHeight / 2);
  const bottom = Math.max(top + 1, Math.ceil(middle + rowHeight / 2));
  return { middle, top: Math.max(0, top), bottom: Math.min(height, bottom) };
}

// One line of pixels for each band of a row: the bands further from the middle leave out the
// classes that do not reach there.
function bandLines(classes, colours, flat) {
  return (flat ? [0] : PAINT_BANDS).map(reach => {
    const line = new Uint32Array(classes.length);
    for (let x = 0; x < classes.length; x++) {
      const paint = classes[x] & ~BORDER;
      if (PAINT_HEIGHT[paint] >= reach) line[x] = colours[flat ? paint : classes[x]];
    }
    return line;
  });
}

// Paints the requests' panel into an ImageData of the panel's size in device pixels. `view` is
// the time in ns (from, to) and the places in the order (top, bottom) that the panel shows.
function paintRows(model, view, order, image, colours) {
  const { width, height } = image;
  const pixels = new Uint32Array(image.data.buffer);
  const perPixel = (view.to - view.from) / width, rowHeight = height / (view.bottom - view.top);
  const classes = new Uint8Array(width), weights = new Float64Array(PAINT_COLOURS.length);
  const flat = rowHeight < 5;
  const stats = { segments: 0, runs: 0, rows: 0 };
  const last = Math.min(order.length - 1, Math.ceil(view.bottom - .5));
  for (let place = Math.max(0, Math.floor(view.top + .5)); place <= last; place++) {
    classes.fill(0);
    const seen = rasterRow(model, order[place], view.from, perPixel, classes, weights);
    stats.rows++;
    if (!seen) continue;
    stats.segments += seen;
    stats.runs += countRuns(classes);
    const bands = bandLines(classes, colours, flat);
    const { middle, top, bottom } = rowLines(place, view, rowHeight, height);
    for (let y = top; y < bottom; y++) {
      const reach = flat ? 0 : Math.abs(y + .5 - middle) * 2 / rowHeight;
      const band = flat ? 0 : PAINT_BANDS.findIndex(height => reach <= height);
      if (band >= 0) overlay(pixels, y * width, bands[band], rowHeight < 1);
    }
  }
  return stats;
}

// Rows that share a line of pixels must not wipe each other out.
function overlay(pixels, at, line, shared) {
  if (!shared) return pixels.set(line, at);
  for (let x = 0; x < line.length; x++) if (line[x]) pixels[at + x] = line[x];
}

// Paints the engine's steps: height is the largest batch in the pixel column, the smaller kind in front.
function paintSteps(model, view, maximum, image, colours) {
  const { step_start, step_ns, step_kind, step_batch } = model.columns;
  const { width, height } = image, pixels = new Uint32Array(image.data.buffer);
  const perPixel = (view.to - view.from) / width;
  const tops = STEP_PAINT.map(() => new Float64Array(width)), borders = new Uint8Array(width);
  let step = Math.max(0, lastNotAbove(step_start, view.from));
  for (; step < step_start.length && step_start[step] <= view.to; step++) {
    const x0 = Math.floor((step_start[step] - view.from) / perPixel);
    const x1 = Math.ceil((step_start[step] + step_ns[step] - view.from) / perPixel);
    const top = tops[step_kind[step]];
    if (x1 - x0 >= 4 && x1 > 0 && x1 <= width) borders[x1 - 1] = BORDER;
    for (let x = Math.max(0, x0); x < Math.min(width, Math.max(x1, x0 + 1)); x++) {
      if (step_batch[step] > top[x]) top[x] = step_batch[step];
    }
  }
  for (let x = 0; x < width; x++) {
    const kinds = [0, 1, 2].filter(kind => tops[kind][x]).sort((a, b) => tops[b][x] - tops[a][x]);
    for (const kind of kinds) {
      const colour = colours[STEP_PAINT[kind] | borders[x]];
      const top = Math.max(0, Math.round(height * (1 - tops[kind][x] / maximum)));
      for (let y = top; y < height; y++) pixels[y * width + x] = colour;
    }
  }
}
