"""A comparison as one HTML file that needs nothing else: tables and overlaid distributions."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np

from sendnn_bench.report.compare import Comparison
from sendnn_bench.report.compare_samples import MEASURES, collect
from sendnn_bench.report.compare_text import HEADERS, cells_of, head_lines, verdict
from sendnn_bench.results import Result

SHOWN = ("ttft", "itl", "e2el", "queued_time")
"""Measures whose distributions are drawn."""

MAX_POINTS = 1000
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Told apart by colour-blind readers as well."""

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem;
       padding: 0 1rem; color: #1b1b1b; background: #fff; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1rem 0; }
th, td { padding: .2rem .8rem; text-align: right; border-bottom: 1px solid #e2e2e2; }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left; }
tr.beyond td { background: #fff1e8; font-weight: 600; }
pre { background: #f5f5f5; padding: .8rem; overflow-x: auto; white-space: pre-wrap; }
div.wide { overflow-x: auto; }
"""


def render_html(comparisons: Sequence[Comparison], tolerance: float) -> str:
    """The page. The first comparison's base is the base of all."""
    results = [comparisons[0].base, *(found.other for found in comparisons)]
    parts = [_section(found, tolerance) for found in comparisons]
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>sendnn-bench compare</title>
<style>{STYLE}</style>
</head>
<body>
<h1>Comparison of {len(results)} runs</h1>
{_distributions(results)}
{"".join(parts)}
</body>
</html>
"""


def _section(found: Comparison, tolerance: float) -> str:
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in HEADERS)
    rows = []
    for row in found.rows:
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells_of(row, tolerance))
        rows.append(
            f'<tr class="beyond">{cells}</tr>' if row.beyond(tolerance) else f"<tr>{cells}</tr>"
        )
    lines = html.escape("\n".join(head_lines(found)))
    return (
        f"<h2>{html.escape(found.other.path.name)} against {html.escape(found.base.path.name)}</h2>"
        f"<pre>{lines}</pre><p>{html.escape(verdict(found, tolerance))}</p>"
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>\n"
    )


def _distributions(results: Sequence[Result]) -> str:
    """Share of samples at or below each value, one line a run; empty without samples."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    curves = _curves([result for result in results if result.detailed])
    titles = list(dict.fromkeys(title for title, *_ in curves))
    if not titles:
        return "<p>No per-request data, so that no distributions can be drawn.</p>"
    columns = min(2, len(titles))
    figure = make_subplots(
        rows=-(-len(titles) // columns), cols=columns, subplot_titles=titles, vertical_spacing=0.14
    )
    named: set[int] = set()
    for title, index, name, x, y in curves:
        place = titles.index(title)
        line = go.Scatter(
            x=x,
            y=y,
            name=html.escape(name),
            legendgroup=str(index),
            showlegend=index not in named,
            line={"color": COLORS[index % len(COLORS)], "shape": "hv", "width": 2},
            hovertemplate="%{y:.1f} % at or below %{x:.2f} ms<extra>%{fullData.name}</extra>",
        )
        figure.add_trace(line, row=place // columns + 1, col=place % columns + 1)
        named.add(index)
    figure.update_xaxes(title_text="ms", rangemode="tozero", gridcolor="#e8e8e8")
    figure.update_yaxes(title_text="% of samples", range=[0, 101], gridcolor="#e8e8e8")
    figure.update_layout(
        height=380 * -(-len(titles) // columns) + 80,
        plot_bgcolor="#fff",
        legend={"orientation": "h", "y": -0.12},
        margin={"t": 50, "l": 60, "r": 20},
    )
    return str(
        figure.to_html(full_html=False, include_plotlyjs=True, config={"displaylogo": False})
    )


def _curves(results: Sequence[Result]) -> list[tuple[str, int, str, list[float], list[float]]]:
    """(title, index of the run, its name, values, percent at or below) for each line."""
    found: list[tuple[str, int, str, list[float], list[float]]] = []
    rows = [result.rows() for result in results]
    for measure in MEASURES:
        if measure.key not in SHOWN:
            continue
        for index, result in enumerate(results):
            values = collect(measure, rows[index]).values
            if len(values):
                title = f"{measure.title} (ms)"
                found.append((title, index, _name(result, index), *_steps(values)))
    return found


def _name(result: Result, index: int) -> str:
    return f"{chr(ord('A') + index)}: {result.path.name}"


def _steps(values: Any) -> tuple[list[float], list[float]]:
    """Points of the cumulative distribution, thinned where there are many."""
    ordered = np.sort(values)
    count = len(ordered)
    ranks = np.unique(np.linspace(0, count - 1, min(count, MAX_POINTS)).round().astype(int))
    return [float(v) for v in ordered[ranks]], [float(100 * (r + 1) / count) for r in ranks]
