// The boxes around the figure, and the start of it all.

function placeTip(picture, figure, x, y, lines) {
  const tip = document.getElementById("tip"), crosshair = document.getElementById("crosshair");
  tip.hidden = !lines.length;
  tip.textContent = lines.join("\n"); // Text, never markup: it can come from a result file.
  const left = x + 16 + tip.offsetWidth > picture.clientWidth ? x - 12 - tip.offsetWidth : x + 16;
  const top = Math.min(y + 14, picture.clientHeight - tip.offsetHeight - 4);
  Object.assign(tip.style, { left: `${Math.max(2, left)}px`, top: `${Math.max(2, top)}px` });
  crosshair.hidden = false;
  Object.assign(crosshair.style, { left: `${x}px`, top: `${MARGIN.top}px`,
    height: `${figure.height - MARGIN.top - MARGIN.bottom}px` });
}

function element(tag, text, className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function requestFacts(model, row) {
  const request = model.requests[row];
  const facts = [["TTFT (client)", milliseconds(request.ttft_ms)],
    ["E2EL (client)", milliseconds(request.e2el_ms)],
    ["Queue wait (server)", milliseconds(request.queue_ms)],
    ["Input tokens", request.input_tokens], ["Output tokens", request.output_tokens]];
  if (request.placed) facts.push(["Arrival", moment(model.arrival[row])]);
  if (request.placed) facts.push(["Finish", moment(model.finish[row])]);
  const optional = [["prefix_cache_hit_pct", "Prefix cache hit", v => `${trimmed(v * 100, 1)} %`],
    ["scheduler_steps_waited", "Steps waited in queue", String], ["num_preemptions", "Preemptions", String],
    ["injected_output_tokens", "Injected output length", String]];
  for (const [key, title, show] of optional) {
    if (request[key] !== null) facts.push([title, show(request[key])]);
  }
  if (request.was_missing_blocks) facts.push(["Held back for KV blocks", "yes"]);
  return [...facts, ...kindFacts(model, row)];
}

function kindFacts(model, row) {
  const sums = model.head.kinds.map(() => [0, 0]);
  for (let i = model.first[row]; i < model.first[row + 1]; i++) {
    sums[model.kind[i]][0]++;
    sums[model.kind[i]][1] += model.end[i] - model.start[i];
  }
  return sums.flatMap(([count, ns], kind) => count
    ? [[model.head.kinds[kind], `${count} ×, ${duration(ns)} in all`]] : []);
}

function showDetails(model, row) {
  const box = document.getElementById("details");
  box.hidden = row < 0;
  if (row < 0) return;
  const list = document.createElement("dl");
  for (const [title, value] of requestFacts(model, row)) {
    const pair = document.createElement("div");
    pair.append(element("dt", title), element("dd", value));
    list.append(pair);
  }
  const { error } = model.requests[row];
  box.replaceChildren(element("h2", requestName(model.requests[row])), list);
  if (error) box.append(element("p", `Failed: ${error}`, "error"));
}

function legendEntries(model) {
  const { thresholds_ms: limits, client, kinds } = model.head, seen = new Set(model.paint);
  const decode = kinds[client ? KIND.TOKEN : KIND.DECODE];
  const titles = {
    [PAINT.QUEUE]: kinds[KIND.QUEUE], [PAINT.PREFILL]: kinds[KIND.PREFILL],
    [PAINT.WAIT_PREFILL]: kinds[KIND.WAIT_PREFILL], [PAINT.WAIT_DECODE]: kinds[KIND.WAIT_DECODE],
    [PAINT.DECODE]: limits ? `${decode} < ${limits[0]} ms` : decode,
    [PAINT.DECODE_MID]: limits && `${decode} ${limits[0]} to ${limits[1]} ms`,
    [PAINT.DECODE_SLOW]: limits && `${decode} ≥ ${limits[1]} ms`,
    [PAINT.PAUSE]: kinds[KIND.PAUSE], [PAINT.WAIT_END]: kinds[KIND.WAIT_END],
    [PAINT.FIRST_TOKEN]: kinds[KIND.FIRST_TOKEN], [PAINT.MIXED]: "Prefill and decode in one step",
  };
  for (const kind of model.columns.step_kind) if (kind === 2) { seen.add(PAINT.MIXED); break; }
  return Object.entries(titles).filter(([paint]) => seen.has(Number(paint)));
}

function showLegend(model) {
  const legend = document.getElementById("legend");
  legend.replaceChildren(...legendEntries(model).map(([paint, title]) => {
    const item = document.createElement("li"), swatch = element("span", "", "swatch");
    if (PAINT_HEIGHT[paint] < .5) swatch.classList.add("thin");
    else if (PAINT_HEIGHT[paint] < .7) swatch.classList.add("middle");
    swatch.style.background = `var(${PAINT_COLOURS[paint]})`;
    item.append(swatch, title);
    return item;
  }));
  const sign = (text, className, title) => {
    const item = document.createElement("li");
    item.append(element("span", text, className), title);
    legend.append(item);
  };
  if (model.requests.some(r => r.placed && !r.error)) sign("┃", "tick", "Finish");
  if (model.requests.some(r => r.error)) sign("✕", "cross", "Failed");
}

function switchTheme(figure) {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  return figure?.draw();
}

// Runs the inflated script as an inline one; the policy at the top of the page knows its hash.
function runScript(bytes) {
  const script = document.createElement("script");
  script.textContent = new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
  document.head.append(script);
}

// Resolves when what was drawn before is on the screen.
function nextFrame() {
  return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
}

async function start() {
  const [data, plotly] = await Promise.all([inflate("data"), inflate("plotly")]);
  const model = buildModel(readPayload(data));
  const figure = new Figure(model, sortedOrder(model, "arrival"));
  showLegend(model);
  document.getElementById("status").hidden = true;
  document.getElementById("controls").hidden = false;
  figure.paint();
  await nextFrame(); // The bars are there; reading Plotly's script takes a second more.
  performance.mark("bars");
  runScript(plotly);
  await figure.draw();
  const controls = new Controls(figure);
  controls.followHash();
  // For scripts and tests; times in nanoseconds, positions in CSS pixels of the window.
  window.timeline = {
    requests: model.requests, totals: () => totals(model), show: view => figure.show(view),
    whole: () => figure.whole(), view: () => ({ ...figure.view }), stats: () => ({ ...figure.stats }),
    order: () => [...figure.order], selected: () => figure.selected,
    position(row, ns) {
      const box = figure.plot.getBoundingClientRect();
      return { x: box.left + figure.xOf(ns), y: box.top + figure.yOf(figure.order.indexOf(row)) };
    },
  };
}

const dark = matchMedia("(prefers-color-scheme: dark)").matches;
document.documentElement.dataset.theme = dark ? "dark" : "light";
document.documentElement.dataset.ready = "no";
start().then(nextFrame).then(() => {
  performance.mark("drawn");
  document.documentElement.dataset.ready = "yes";
}, error => {
  const status = document.getElementById("status");
  status.hidden = false;
  status.textContent = `This browser cannot draw the picture (${error.message}). The tables are complete.`;
  throw error;
});
