// Numbers for people, and the text of the hover box.

function trimmed(value, digits) {
  return value.toLocaleString("en-US", { maximumFractionDigits: digits, useGrouping: false });
}

function duration(ns) {
  if (ns === 0) return "0 ms";
  if (ns < 1e3) return `${ns} ns`;
  if (ns < 1e6) return `${trimmed(ns / 1e3, 3)} µs`;
  if (ns < 1e10) return `${trimmed(ns / 1e6, 3)} ms`;
  return `${trimmed(ns / 1e9, 3)} s`;
}

function moment(ns) { return `${trimmed(ns / 1e9, 6)} s`; }

function milliseconds(value) { return value === null ? "–" : `${trimmed(value, 3)} ms`; }

function requestName(request) {
  return `Request #${request.index}${request.name ? ` (${request.name})` : ""}`;
}

function spanText(model, start, end) {
  const clock = model.head.virtual ? "Virtual time" : "Time";
  return `${clock} ${moment(start)} to ${moment(end)}`;
}

function segmentTitle(model, row, segment) {
  const kind = model.kind[segment], title = model.head.kinds[kind];
  const numbered = [KIND.PREFILL, KIND.DECODE, KIND.TOKEN, KIND.PAUSE].includes(kind);
  if (!numbered) return title;
  const all = model.kind.subarray(model.first[row], model.first[row + 1]);
  let count = 0;
  for (const other of all) if (other === kind) count++;
  return `${title} ${ordinal(model, row, segment)} of ${count}`;
}

function segmentText(model, row, segment) {
  const { start, end, kind, columns } = model;
  const lines = [
    requestName(model.requests[row]),
    `${segmentTitle(model, row, segment)}: ${duration(end[segment] - start[segment])}`,
    spanText(model, start[segment], end[segment]),
  ];
  if (kind[segment] === KIND.PREFILL) {
    const tokens = columns.chunk_tokens[model.firstChunk[row] + ordinal(model, row, segment) - 1];
    if (tokens) lines.push(`Tokens ${tokens}`);
  }
  if (kind[segment] === KIND.DECODE || kind[segment] === KIND.TOKEN) lines.push("Tokens 1");
  const step = kind[segment] === KIND.PREFILL || kind[segment] === KIND.DECODE
    ? stepOf(model, segment) : -1;
  if (step >= 0) lines.push(...stepFacts(model, step));
  return lines;
}

function stepFacts(model, step) {
  const { step_batch, step_tkv, step_kv } = model.columns;
  const counted = model.head.batch_sizes_counted ? " (counted from the rows)" : "";
  const lines = [`Batch size ${step_batch[step]}${counted}`];
  if (step_tkv[step]) lines.push(`tkv ${step_tkv[step]}`);
  if (step_kv[step]) lines.push(`KV blocks in use ${step_kv[step]}`);
  return lines;
}

function momentText(model, ns) {
  const { columns, head } = model;
  const lines = [`${head.virtual ? "Virtual time" : "Time"} ${moment(ns)}`];
  const count = lastNotAbove(columns.count_time, ns);
  if (count >= 0) {
    lines.push(`Waiting ${columns.count_waiting[count]}, running ${columns.count_running[count]}, ` +
      `paused ${columns.count_paused[count]}`);
  }
  const step = lastNotAbove(columns.step_start, ns);
  if (step >= 0 && ns <= columns.step_start[step] + columns.step_ns[step]) {
    lines.push(`${STEP_TITLES[columns.step_kind[step]]}: ${duration(columns.step_ns[step])}`);
    lines.push(...stepFacts(model, step));
  } else if (columns.step_start.length) lines.push("No step runs");
  return lines;
}
