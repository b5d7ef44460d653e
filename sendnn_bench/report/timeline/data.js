"use strict";
// The page's data: inflate, read the columns, lay the segments out in time. Times are numbers of
// nanoseconds on the axis; a double holds them exactly up to 104 days.

const KIND = { QUEUE: 0, PREFILL: 1, WAIT_PREFILL: 2, WAIT_DECODE: 3, DECODE: 4, PAUSE: 5,
  WAIT_END: 6, FIRST_TOKEN: 7, TOKEN: 8 };

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function inflate(elementId) {
  const element = document.getElementById(elementId);
  const bytes = fromBase64(element.textContent.trim());
  element.textContent = ""; // The text is not needed again; let the browser have its memory.
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function readPayload(bytes) {
  const headBytes = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  let at = 4 + headBytes;
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(4, at)));
  const columns = {};
  for (const { name, count, width } of head.columns) {
    const values = new Float64Array(count);
    for (let plane = 0, factor = 1; plane < width; plane++, factor *= 256, at += count) {
      for (let i = 0; i < count; i++) values[i] += bytes[at + i] * factor;
    }
    columns[name] = values;
  }
  return { head, columns };
}

// Segment i of request r: first[r] <= i < first[r + 1]. Chunk and decode numbers count from 1.
function buildModel({ head, columns }) {
  const rows = head.requests.length;
  const total = columns.segment_kind.length;
  const model = {
    head, requests: head.requests, columns, rows, total,
    first: new Uint32Array(rows + 1), firstChunk: new Uint32Array(rows + 1),
    kind: Uint8Array.from(columns.segment_kind), start: new Float64Array(total),
    end: new Float64Array(total), paint: new Uint8Array(total), finish: new Float64Array(rows),
    arrival: columns.row_arrival, from: Infinity, to: -Infinity,
  };
  let segment = 0, chunk = 0;
  for (let row = 0; row < rows; row++) {
    let cursor = columns.row_arrival[row];
    for (const last = segment + columns.row_segments[row]; segment < last; segment++) {
      model.start[segment] = cursor;
      cursor += columns.segment_ns[segment];
      model.end[segment] = cursor;
      model.paint[segment] = paintClass(model.kind[segment], columns.segment_ns[segment], head);
      if (model.kind[segment] === KIND.PREFILL) chunk++;
    }
    model.finish[row] = cursor;
    model.first[row + 1] = segment;
    model.firstChunk[row + 1] = chunk;
    if (!head.requests[row].placed) continue;
    model.from = Math.min(model.from, columns.row_arrival[row]);
    model.to = Math.max(model.to, cursor);
  }
  if (head.virtual && model.from < 0.1 * model.to) model.from = 0;
  if (!(model.to > model.from)) Object.assign(model, spanOf(model));
  return model;
}

// Requests that took no time at all still need an axis.
function spanOf(model) {
  const from = Number.isFinite(model.from) ? model.from : 0;
  return { from, to: from + 1e9 };
}

function thresholdClass(ns, thresholds) {
  if (!thresholds || ns < thresholds[0] * 1e6) return PAINT.DECODE;
  return ns < thresholds[1] * 1e6 ? PAINT.DECODE_MID : PAINT.DECODE_SLOW;
}

// Index of the last value that is not above the wanted one, in [low, high); low - 1 if none.
function lastNotAbove(values, wanted, low = 0, high = values.length) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= wanted) low = middle + 1; else high = middle;
  }
  return low - 1;
}

function segmentAt(model, row, ns) {
  const low = model.first[row], high = model.first[row + 1];
  if (low === high || ns < model.start[low] || ns > model.finish[row]) return -1;
  return lastNotAbove(model.start, ns, low, high);
}

// How many segments of its kind the request had up to this one, itself included.
function ordinal(model, row, segment) {
  let count = 0;
  for (let i = model.first[row]; i <= segment; i++) if (model.kind[i] === model.kind[segment]) count++;
  return count;
}

// The engine step of a segment. The segment can begin a rounding error later than the step.
function stepOf(model, segment) {
  const { step_start, step_ns } = model.columns;
  const last = lastNotAbove(step_start, model.start[segment]);
  for (let step = last; step >= 0 && step > last - 4; step--) {
    if (step_start[step] + step_ns[step] === model.end[segment]) return step;
  }
  return -1;
}

function totals(model) {
  const result = model.head.kinds.map(title => ({ title, count: 0, ns: 0 }));
  for (let i = 0; i < model.total; i++) {
    result[model.kind[i]].count++;
    result[model.kind[i]].ns += model.end[i] - model.start[i];
  }
  return result;
}
