// What the reader does: sort, find, choose, hover, keys, wheel.

const SORT_KEYS = { ttft: "ttft_ms", e2el: "e2el_ms", queue: "queue_ms" };

function sortedOrder(model, by) {
  const rows = [...model.requests.keys()], key = SORT_KEYS[by];
  const arrival = row => model.requests[row].placed ? model.arrival[row] : Infinity;
  const value = key ? row => -(model.requests[row][key] ?? -Infinity) : arrival;
  const compare = (a, b) => a < b ? -1 : a > b ? 1 : 0;
  return rows.sort((a, b) => compare(value(a), value(b)) || compare(arrival(a), arrival(b)) || a - b);
}

// A number names one request; other text is looked for in names and errors.
function matches(model, text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return [];
  const number = /^#?(\d+)$/.exec(wanted);
  const exact = number ? model.requests.findIndex(r => r.index === Number(number[1])) : -1;
  const found = row => {
    const { name, error } = model.requests[row];
    return name.toLowerCase().includes(wanted) || error.toLowerCase().includes(wanted);
  };
  const others = [...model.requests.keys()].filter(row => row !== exact && found(row));
  return exact < 0 ? others : [exact, ...others];
}

class Controls {
  constructor(figure) {
    this.figure = figure;
    this.model = figure.model;
    this.picture = document.getElementById("picture");
    this.found = [];
    this.bindToolbar();
    this.bindPicture();
    window.addEventListener("hashchange", () => this.followHash());
  }

  bindToolbar() {
    const on = (id, event, handler) => document.getElementById(id).addEventListener(event, handler);
    on("controls", "submit", event => event.preventDefault());
    on("sort", "change", event => this.sort(event.target.value));
    on("search", "input", event => this.search(event.target.value));
    on("search", "keydown", event => { if (event.key === "Enter") this.nextFound(); });
    on("slowest", "click", event => { event.preventDefault(); this.slowest(); });
    on("theme", "click", () => switchTheme(this.figure));
    for (const button of document.querySelectorAll("[data-act]")) {
      button.addEventListener("click", () => this.act(button.dataset.act));
    }
  }

  bindPicture() {
    const { picture, figure } = this;
    figure.plot.on("plotly_relayout", () => {
      const { xaxis, yaxis } = figure.plot.layout;
      figure.show({ from: xaxis.range[0] * 1e9, to: xaxis.range[1] * 1e9,
        bottom: Math.max(...yaxis.range), top: Math.min(...yaxis.range) });
    });
    // Plotly's own event: its drag layer keeps the browser's double clicks to itself.
    figure.plot.on("plotly_doubleclick", () => this.act("fit"));
    picture.addEventListener("mousemove", event => this.hover(event));
    picture.addEventListener("mouseleave", () => this.hideTip());
    picture.addEventListener("mousedown", event => { this.pressed = [event.clientX, event.clientY]; }, true);
    picture.addEventListener("click", event => this.click(event), true);
    picture.addEventListener("wheel", event => this.wheel(event), { passive: false });
    document.addEventListener("keydown", event => this.key(event));
    new ResizeObserver(() => this.resized()).observe(picture);
  }

  resized() {
    if (this.width === this.figure.plot.clientWidth) return;
    const first = this.width === undefined;
    this.width = this.figure.plot.clientWidth;
    if (!first) Plotly.Plots.resize(this.figure.plot).then(() => this.figure.show({}));
  }

  position(event) {
    const box = this.picture.getBoundingClientRect(), { clientLeft, clientTop } = this.picture;
    return [event.clientX - box.left - clientLeft, event.clientY - box.top - clientTop];
  }

  sort(by) {
    document.getElementById("sort").value = by;
    this.figure.order = sortedOrder(this.model, by);
    return this.figure.show({});
  }

  slowest() {
    this.sort("e2el");
    return this.figure.show({ top: -.5, bottom: Math.min(10, this.model.rows) - .5 });
  }

  search(text) {
    this.found = matches(this.model, text);
    const count = this.found.length;
    document.getElementById("found").textContent = text.trim() ? `${count} found` : "";
    if (count) this.choose(this.found[0], true);
  }

  nextFound() {
    if (!this.found.length) return;
    this.found.push(this.found.shift());
    this.choose(this.found[0], true);
  }

  // Selects a row (-1: none); `bring` moves it into view.
  choose(row, bring = false) {
    const { figure } = this, { view } = figure;
    figure.selected = row;
    showDetails(this.model, row);
    const place = figure.order.indexOf(row), rows = view.bottom - view.top;
    const outside = place < view.top + .5 || place > view.bottom - .5;
    if (!bring || row < 0 || !outside) return figure.show({});
    return figure.show({ top: place - rows / 2, bottom: place + rows / 2 });
  }

  zoomTo(row) {
    const { model, figure } = this, pad = (model.finish[row] - model.arrival[row]) * .02;
    const place = figure.order.indexOf(row), half = Math.min(8, model.rows / 2);
    if (!model.requests[row].placed) return this.choose(row, true);
    return figure.show({ from: model.arrival[row] - pad, to: model.finish[row] + pad,
      top: place - half, bottom: place + half });
  }

  scaleTime(factor, around) {
    const { view } = this.figure, at = around ?? (view.from + view.to) / 2;
    return this.figure.show({ from: at - (at - view.from) * factor, to: at + (view.to - at) * factor });
  }

  moveTime(share) {
    const { view } = this.figure, by = (view.to - view.from) * share;
    return this.figure.show({ from: view.from + by, to: view.to + by });
  }

  scaleRows(factor) {
    const { view, order, selected } = this.figure, middle = (view.top + view.bottom) / 2;
    const place = selected < 0 ? middle : order.indexOf(selected);
    const at = place > view.top && place < view.bottom ? place : middle;
    return this.figure.show({ top: at - (at - view.top) * factor, bottom: at + (view.bottom - at) * factor });
  }

  moveRows(share) {
    const { view } = this.figure, by = (view.bottom - view.top) * share;
    return this.figure.show({ top: view.top + by, bottom: view.bottom + by });
  }

  moveChoice(by) {
    const { order, selected } = this.figure;
    const place = selected < 0 ? (by > 0 ? 0 : order.length - 1) : order.indexOf(selected) + by;
    return this.choose(order[Math.min(Math.max(place, 0), order.length - 1)], true);
  }

  act(name) {
    const acts = {
      "zoom-in": () => this.scaleTime(.5), "zoom-out": () => this.scaleTime(2),
      "rows-in": () => this.scaleRows(.5), "rows-out": () => this.scaleRows(2),
      "fit": () => this.figure.show(this.figure.whole()),
    };
    return acts[name]();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/" && document.activeElement.tagName !== "INPUT") {
      event.preventDefault();
      document.getElementById("search").focus();
      return;
    }
    if (document.activeElement !== this.picture) return;
    const far = event.shiftKey ? .5 : .1, { selected } = this.figure;
    const keys = {
      ArrowLeft: () => this.moveTime(-far), ArrowRight: () => this.moveTime(far),
      ArrowUp: () => this.moveChoice(-1), ArrowDown: () => this.moveChoice(1),
      PageUp: () => this.moveRows(-.8), PageDown: () => this.moveRows(.8),
      "+": () => this.act("zoom-in"), "=": () => this.act("zoom-in"), "-": () => this.act("zoom-out"),
      "[": () => this.act("rows-out"), "]": () => this.act("rows-in"),
      0: () => this.act("fit"), Home: () => this.act("fit"),
      Enter: () => selected >= 0 && this.zoomTo(selected), Escape: () => this.choose(-1),
    };
    if (!Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  }

  wheel(event) {
    const sign = Math.sign(event.deltaY || event.deltaX);
    if (!event.ctrlKey && !event.shiftKey && !event.altKey) return; // The page scrolls.
    event.preventDefault();
    const at = this.figure.nsAt(this.position(event)[0]);
    if (event.ctrlKey) this.scaleTime(sign > 0 ? 1.25 : .8, at);
    else if (event.shiftKey) this.moveTime(sign * .1);
    else this.moveRows(sign * .2);
  }

  click(event) {
    const [fromX, fromY] = this.pressed ?? [event.clientX, event.clientY];
    const moved = Math.hypot(event.clientX - fromX, event.clientY - fromY) > 4;
    const [x, y] = this.position(event), { panels, order, width } = this.figure;
    this.picture.focus({ preventScroll: true });
    const row = order[this.figure.placeAt(y)], below = y > panels.requests.top + panels.requests.height;
    if (!moved && !below && x < MARGIN.left + width && row !== undefined) this.choose(row);
  }

  hover(event) {
    const [x, y] = this.position(event), { figure } = this, panel = figure.panelAt(x, y);
    if (!panel) return this.hideTip();
    const lines = panel === "requests" ? this.rowText(x, y) : momentText(this.model, figure.nsAt(x));
    placeTip(this.picture, figure, x, y, lines);
  }

  rowText(x, y) {
    const { figure, model } = this, row = figure.order[figure.placeAt(y)];
    if (row === undefined) return [];
    const request = model.requests[row], segment = segmentAt(model, row, figure.nsAt(x));
    const error = request.error ? [`Failed: ${request.error.slice(0, 200)}`] : [];
    const absent = request.placed ? "Not in the system" : "No times on this axis";
    if (segment < 0) return [requestName(request), absent, ...error];
    const low = model.first[row], high = model.first[row + 1];
    const before = lastNotAbove(model.start, figure.nsAt(x - .5), low, segment + 1);
    const others = lastNotAbove(model.start, figure.nsAt(x + .5), segment, high) - Math.max(low, before);
    const more = others > 1 ? [`${others + 1} segments share this pixel: zoom in`] : [];
    return [...segmentText(model, row, segment), ...error, ...more];
  }

  hideTip() {
    document.getElementById("tip").hidden = document.getElementById("crosshair").hidden = true;
  }

  followHash() {
    const request = /^#request-(\d+)$/.exec(location.hash);
    if (location.hash === "#slowest") return this.slowest();
    if (!request) return undefined;
    const row = this.model.requests.findIndex(r => r.index === Number(request[1]));
    if (row < 0) return undefined;
    this.picture.scrollIntoView({ block: "nearest" });
    this.picture.focus({ preventScroll: true });
    return this.choose(row, true).then(() => this.zoomTo(row));
  }
}
