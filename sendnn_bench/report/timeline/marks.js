// What lies on the bars: time lines, the chosen row, finishes, failures, names.

// Time lines behind the bars, at the ticks.
function drawGrid(figure, context) {
  context.globalCompositeOperation = "destination-over";
  context.fillStyle = cssColour("--line");
  for (const seconds of figure.ticks().at) {
    const x = Math.round(figure.xOf(seconds * 1e9));
    for (const { top, height } of Object.values(figure.panels)) context.fillRect(x, top, 1, height);
  }
  context.globalCompositeOperation = "source-over";
}

// Selected row, finishes, failures and, where there is room, what a bar is.
function drawMarks(figure, context) {
  const { model, order, view, panels: { requests: panel } } = figure, height = figure.rowHeight;
  context.save();
  context.beginPath();
  context.rect(MARGIN.left - 12, panel.top, figure.width + 12 + MARGIN.right, panel.height);
  context.clip();
  const last = Math.min(order.length - 1, Math.ceil(view.bottom));
  for (let place = Math.max(0, Math.floor(view.top)); place <= last; place++) {
    const row = order[place], y = figure.yOf(place), request = model.requests[row];
    if (row === figure.selected) markSelected(context, figure, y, height);
    const x = figure.xOf(model.finish[row]);
    const size = Math.min(5, Math.max(2, height * .35));
    if (request.error) cross(context, request.placed ? x : MARGIN.left - 5, y, size);
    else if (request.placed && height >= 5) {
      context.fillStyle = cssColour("--text");
      context.fillRect(x - 1, y - height * .45, 2, height * .9);
    }
    if (height >= 15) labels(context, figure, row, y);
  }
  context.restore();
}

function markSelected(context, figure, y, height) {
  context.strokeStyle = cssColour("--link");
  context.lineWidth = 2;
  context.strokeRect(MARGIN.left + 1, y - Math.max(height, 4) / 2, figure.width - 2, Math.max(height, 4));
}

function cross(context, x, y, size) {
  context.strokeStyle = cssColour("--fail");
  context.lineWidth = size > 3 ? 2.5 : 1.5;
  context.beginPath();
  context.moveTo(x - size, y - size); context.lineTo(x + size, y + size);
  context.moveTo(x + size, y - size); context.lineTo(x - size, y + size);
  context.stroke();
}

function labels(context, figure, row, y) {
  const { model, view } = figure, low = model.first[row], high = model.first[row + 1];
  const perPixel = (view.to - view.from) / figure.width;
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  let segment = Math.max(low, lastNotAbove(model.start, view.from, low, high));
  for (; segment < high && model.start[segment] <= view.to; segment++) {
    const kind = model.kind[segment];
    if ((model.end[segment] - model.start[segment]) / perPixel < 46) continue;
    if (kind !== KIND.PREFILL && kind !== KIND.DECODE) continue;
    const text = `${kind === KIND.PREFILL ? "chunk" : "decode"} ${ordinal(model, row, segment)}`;
    const left = Math.max(figure.xOf(model.start[segment]), MARGIN.left) + 5;
    if (left + context.measureText(text).width >= figure.xOf(model.end[segment]) - 3) continue;
    context.fillStyle = textOn(cssColour(PAINT_COLOURS[model.paint[segment]]));
    context.fillText(text, left, y);
  }
}

// Black or white, whichever reads better on a colour.
function textOn(colour) {
  const value = parseInt(colour.slice(1), 16);
  const light = .299 * (value >> 16) + .587 * (value >> 8 & 255) + .114 * (value & 255);
  return light > 112 ? "#000000" : "#ffffff";
}
