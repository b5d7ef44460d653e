// The figure: Plotly draws axes, lines and the zoom box; the bars lie on a canvas beneath it.

const MARGIN = { left: 74, right: 18, top: 10, bottom: 46 }, PANEL_GAP = 30, PANEL_HEIGHT = 92;

class Figure {
  constructor(model, order) {
    this.model = model;
    this.order = order;
    this.plot = document.getElementById("plot");
    this.canvas = document.getElementById("bars");
    this.selected = -1;
    this.stats = {};
    this.view = this.whole();
    this.panels = this.layOut();
  }

  whole() {
    const { from, to, rows } = this.model, pad = (to - from) * .01;
    return { from: from ? from - pad : 0, to: to + pad, top: -.5, bottom: rows - .5 };
  }

  // Panels from top to bottom with their place in CSS pixels and, for Plotly, their axis.
  layOut() {
    const { columns, rows } = this.model, requestHeight = Math.min(Math.max(rows * 22, 110), 480);
    const kinds = [["requests", requestHeight], ["counts", PANEL_HEIGHT]];
    if (columns.step_kv.some(value => value > 0)) kinds.push(["kv", PANEL_HEIGHT]);
    if (columns.step_start.length) kinds.push(["steps", PANEL_HEIGHT]);
    const counts = ["count_waiting", "count_running", "count_paused"];
    const maxima = { counts: Math.max(...counts.map(name => this.maximumOf(name))),
      kv: this.maximumOf("step_kv"), steps: this.maximumOf("step_batch") };
    let top = MARGIN.top;
    const panels = {};
    kinds.forEach(([name, height], index) => {
      panels[name] = { top, height, axis: index ? `y${index + 1}` : "y", maximum: maxima[name] * 1.08 };
      top += height + PANEL_GAP;
    });
    this.height = top - PANEL_GAP + MARGIN.bottom;
    this.plot.style.height = `${this.height}px`;
    return panels;
  }

  get width() { return this.plot.clientWidth - MARGIN.left - MARGIN.right; }
  maximumOf(name) { return this.model.columns[name].reduce((most, v) => Math.max(most, v), 1); }

  traces() {
    const line = (name, panel, column, colour, dash) => this.panels[panel] && {
      type: "scatter", mode: "lines", name, hoverinfo: "skip", yaxis: this.panels[panel].axis,
      line: { color: cssColour(colour), width: 1.8, dash, shape: "hv" }, x: [], y: [],
      meta: { column, times: panel === "kv" ? "step_start" : "count_time" },
    };
    const empty = axis => ({ type: "scatter", x: [null], y: [null], yaxis: axis, hoverinfo: "skip" });
    return [
      empty("y"), this.panels.steps && empty(this.panels.steps.axis),
      line("waiting", "counts", "count_waiting", "--waiting-line", "solid"),
      line("running", "counts", "count_running", "--running-line", "dash"),
      line("paused", "counts", "count_paused", "--paused-line", "dot"),
      line("KV blocks", "kv", "step_kv", "--kv-line", "solid"),
    ].filter(Boolean);
  }

  layout() {
    const soft = cssColour("--soft"), grid = cssColour("--line");
    const inner = this.height - MARGIN.top - MARGIN.bottom;
    const domain = panel => [1 - (panel.top - MARGIN.top + panel.height) / inner,
      1 - (panel.top - MARGIN.top) / inner].map(value => Math.min(1, Math.max(0, value)));
    const layout = {
      height: this.height, showlegend: false, hovermode: false, dragmode: "zoom",
      margin: { l: MARGIN.left, r: MARGIN.right, t: MARGIN.top, b: MARGIN.bottom, pad: 0 },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: cssColour("--text"), size: 12, family: getComputedStyle(document.body).fontFamily },
      xaxis: { showgrid: false, zeroline: false, tickmode: "array",
        ticks: "outside", ticklen: 6, tickcolor: grid,
        title: { text: this.model.head.axis, standoff: 6 }, anchor: Object.values(this.panels).at(-1).axis },
      annotations: [],
    };
    const titles = { requests: "", counts: this.countsTitle(), kv: "KV blocks in use",
      steps: "Batch size of each step" };
    for (const [name, panel] of Object.entries(this.panels)) {
      layout[panel.axis.replace("y", "yaxis")] = name === "requests"
        ? { domain: domain(panel), showgrid: false, zeroline: false, tickmode: "array" }
        : { domain: domain(panel), range: [0, panel.maximum], fixedrange: true, nticks: 4,
          gridcolor: grid, zeroline: false, exponentformat: "none" };
      if (!titles[name]) continue;
      layout.annotations.push({ text: titles[name], xref: "paper", x: 0, xanchor: "left", yref: "paper",
        y: domain(panel)[1], yanchor: "bottom", showarrow: false, font: { color: soft, size: 12 } });
    }
    return layout;
  }

  countsTitle() {
    const part = (name, colour, sign) => `<span style="color:${cssColour(colour)}">${sign} ${name}</span>`;
    return "Requests  " + part("waiting", "--waiting-line", "──") + "  " +
      part("running", "--running-line", "╌╌") + "  " + part("paused", "--paused-line", "┈┈");
  }

  // Ranges and row labels of the view, as Plotly's axes take them.
  ranges() {
    const { from, to, top, bottom } = this.view, places = [];
    const every = roundStep(Math.max(1, (bottom - top) * 15 / this.panels.requests.height));
    const last = Math.min(bottom, this.order.length - 1);
    let place = Math.ceil(Math.max(0, top) / every) * every;
    for (; place <= last; place += every) places.push(place);
    return { x: [from / 1e9, to / 1e9], y: [bottom, top], places, ...this.ticks(),
      names: places.map(place => `#${this.model.requests[this.order[place]].index}`) };
  }

  // Round seconds, written with as many digits as their distance needs: never a date, never 60.000.
  ticks() {
    const from = this.view.from / 1e9, to = this.view.to / 1e9;
    const step = roundStep((to - from) / Math.max(2, this.width / 110));
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), at = [];
    for (let i = Math.ceil(from / step); i * step <= to; i++) at.push(i * step);
    return { at, written: at.map(value => `${value.toFixed(digits)} s`) };
  }

  async draw() {
    const layout = this.layout(), { x, y, places, names, at, written } = this.ranges();
    Object.assign(layout.xaxis, { range: x, tickvals: at, ticktext: written });
    Object.assign(layout.yaxis, { range: y, tickvals: places, ticktext: names });
    this.data = this.traces();
    this.paint();
    this.fillLines();
    await Plotly.react(this.plot, this.data, layout,
      { displayModeBar: false, doubleClick: false, scrollZoom: false });
  }

  // Shows a view; everything that moves goes through here.
  async show(view) {
    this.view = this.clamped({ ...this.view, ...view });
    this.paint();
    this.fillLines();
    const lines = this.data.filter(trace => trace.meta), { x, y, places, names, at, written } = this.ranges();
    await Plotly.update(this.plot, { x: lines.map(line => line.x), y: lines.map(line => line.y) },
      { "xaxis.range": x, "xaxis.tickvals": at, "xaxis.ticktext": written,
        "yaxis.range": y, "yaxis.tickvals": places, "yaxis.ticktext": names },
      lines.map(line => this.data.indexOf(line)));
  }

  clamped({ from, to, top, bottom }) {
    const whole = this.whole();
    const span = Math.min(Math.max(to - from, 10), whole.to - whole.from);
    const rows = Math.min(Math.max(bottom - top, 1), whole.bottom - whole.top);
    const start = Math.min(Math.max(from, whole.from), whole.to - span);
    const first = Math.min(Math.max(top, whole.top), whole.bottom - rows);
    return { from: start, to: start + span, top: first, bottom: first + rows };
  }

  fillLines() {
    for (const trace of this.data) {
      if (trace.meta) Object.assign(trace, stepLine(this.model.columns[trace.meta.times],
        this.model.columns[trace.meta.column], this.view, Math.ceil(this.width), this.model.to));
    }
  }

  paint() {
    const ratio = window.devicePixelRatio || 1, started = performance.now();
    const width = Math.max(1, Math.round(this.width * ratio));
    this.canvas.width = Math.round(this.plot.clientWidth * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.width = `${this.plot.clientWidth}px`;
    this.canvas.style.height = `${this.height}px`;
    const context = this.canvas.getContext("2d"), colours = packedColours();
    const layer = (panel, painter) => {
      const image = new ImageData(width, Math.round(panel.height * ratio));
      const result = painter(image);
      context.putImageData(image, Math.round(MARGIN.left * ratio), Math.round(panel.top * ratio));
      return result;
    };
    const { model, view, order, panels: { requests, steps } } = this;
    this.stats = layer(requests, image => paintRows(model, view, order, image, colours));
    if (steps) layer(steps, image => paintSteps(model, view, steps.maximum, image, colours));
    context.scale(ratio, ratio);
    drawMarks(this, context);
    drawGrid(this, context);
    this.stats.milliseconds = performance.now() - started;
  }

  // CSS pixels inside the picture.
  xOf(ns) { return MARGIN.left + (ns - this.view.from) / (this.view.to - this.view.from) * this.width; }
  nsAt(x) { return this.view.from + (x - MARGIN.left) / this.width * (this.view.to - this.view.from); }
  get rowHeight() { return this.panels.requests.height / (this.view.bottom - this.view.top); }
  yOf(place) { return this.panels.requests.top + (place - this.view.top) * this.rowHeight; }
  placeAt(y) { return Math.round(this.view.top + (y - this.panels.requests.top) / this.rowHeight); }
  panelAt(x, y) {
    if (x < MARGIN.left || x > MARGIN.left + this.width) return null;
    const found = Object.entries(this.panels).find(([, p]) => y >= p.top && y <= p.top + p.height);
    return found ? found[0] : null;
  }
}

// The next of 1, 2, 5, 10, 20, 50, ... (and 0.5, 0.2, ...).
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].find(factor => factor * power >= least * .999999) * power;
}

// A step line of at most four points a pixel: first, lowest, highest and last of the column.
function stepLine(times, values, { from, to }, width, end) {
  const x = [], y = [];
  const low = Math.max(0, lastNotAbove(times, from)), high = lastNotAbove(times, to);
  const add = i => { x.push(times[i] / 1e9); y.push(values[i]); };
  const perPixel = (to - from) / width, dense = high - low > 4 * width;
  for (let i = low; i <= high;) {
    let next = i + 1;
    if (dense) {
      let least = i, most = i;
      const column = Math.floor((times[i] - from) / perPixel);
      for (; next <= high && Math.floor((times[next] - from) / perPixel) === column; next++) {
        if (values[next] < values[least]) least = next;
        if (values[next] > values[most]) most = next;
      }
      [...new Set([i, least, most, next - 1])].sort((a, b) => a - b).forEach(add);
    } else add(i);
    i = next;
  }
  const last = Math.min(to, end) / 1e9; // Nothing is known after the last request's end.
  if (x.length && last >= x.at(-1)) { x.push(last); y.push(y.at(-1)); }
  return { x, y };
}
