"""A sweep as one HTML file that needs nothing else. The same summary gives the same bytes."""

from __future__ import annotations

import html
import shlex
from collections.abc import Sequence
from typing import Any

from sendnn_bench.report.compare_html import COLORS, STYLE
from sendnn_bench.sweep.analysis import Analysis, Curve
from sendnn_bench.sweep.slo import describe
from sendnn_bench.sweep.summary import Row, Summary
from sendnn_bench.sweep.table import cells, notes

MORE_STYLE = """
th:nth-child(n), td:nth-child(n) { text-align: right; }
td:last-child { text-align: left; }
figure { margin: 1.5rem 0; }
figcaption { color: #444; max-width: 48rem; }
"""
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)
"""The page loads nothing, whatever is in it."""

GRID = "#e8e8e8"
HEIGHT_PX = 460
LATENCIES = (("median", "median_ttft_ms", "solid"), ("P99", "p99_ttft_ms", "dash"))
"""Lines of a curve: word, number, dash."""

RING = {"size": 18, "color": "rgba(0,0,0,0)"}
"""Around a point at a knee."""


def render(summary: Summary, analysis: Analysis) -> str:
    """The page."""
    figures = [
        _figure(f"figure-{number}", figure, caption)
        for number, (figure, caption) in enumerate(_figures(summary, analysis), 1)
    ]
    title = f"Sweep of {summary.model}: {len(summary.done)} of {len(summary.rows)} points"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{STYLE}{MORE_STYLE}</style>
{_plotly() if figures else ""}
</head>
<body>
<h1>{html.escape(title)}</h1>
{"".join(figures) or "<p>No point has a result yet.</p>"}
{_table(summary, analysis)}
{_list(notes(summary, analysis))}
{_commands(summary.rows)}
</body>
</html>
"""


def _figures(summary: Summary, analysis: Analysis) -> list[tuple[Any, str]]:
    found: list[tuple[Any, str]] = []
    if analysis.pareto:
        found.append((_pareto(summary, analysis), PARETO_CAPTION))
    drawn = [curve for curve in analysis.curves if len(curve.rows) > 1]
    if drawn:
        found.append((_latency(drawn, analysis.over), LATENCY_CAPTION))
        if summary.slo:
            caption = f"Requests per second in time: {describe(summary.slo)}."
            found.append((_goodput(drawn, analysis.over), caption))
    return found


PARETO_CAPTION = (
    "Throughput of one user (1 / median TPOT) against throughput of all. Points on the line are "
    "the Pareto front: no other point is better in one without being worse in the other."
)
LATENCY_CAPTION = (
    "Time to first token over the load: median (solid) and P99 (dashed). A ring marks the knee of "
    "the P99 curve, the point farthest below the straight line between the curve's ends."
)


def _pareto(summary: Summary, analysis: Analysis) -> Any:
    import plotly.graph_objects as go

    figure = go.Figure()
    front = [summary.rows[index] for index in analysis.pareto]
    figure.add_trace(
        go.Scatter(
            x=[row.numbers["output_throughput"] for row in front],
            y=[row.numbers["user_throughput"] for row in front],
            mode="lines",
            name="Pareto front",
            line={"color": "#888", "width": 2, "shape": "vh"},
            hoverinfo="skip",
        )
    )
    groups: dict[tuple[tuple[str, str], ...], list[Row]] = {}
    for row in summary.done:
        groups.setdefault(row.server, []).append(row)
    for index, (server, rows) in enumerate(groups.items()):
        figure.add_trace(
            _trace(
                [row.numbers.get("output_throughput") for row in rows],
                [row.numbers.get("user_throughput") for row in rows],
                rows,
                name=" ".join(f"{name}={value}" for name, value in server) or "runs",
                color=COLORS[index % len(COLORS)],
                hover="%{y:.2f} tok/s per user, %{x:.1f} tok/s in all",
                mode="markers",
            )
        )
    return _laid_out(figure, "Output throughput (tok/s)", "Output throughput per user (tok/s)")


def _latency(curves: Sequence[Curve], over: str) -> Any:
    import plotly.graph_objects as go

    figure = go.Figure()
    for index, curve in enumerate(curves):
        color = COLORS[index % len(COLORS)]
        for word, key, dash in (
            ("median", "median_ttft_ms", "solid"),
            ("P99", "p99_ttft_ms", "dash"),
        ):
            figure.add_trace(
                _trace(
                    curve.loads,
                    [row.numbers.get(key) for row in curve.rows],
                    curve.rows,
                    name=f"{curve.name}, {word}",
                    color=color,
                    dash=dash,
                    hover=f"{word} TTFT %{{y:.1f}} ms",
                )
            )
        if curve.knee is not None:
            figure.add_trace(
                go.Scatter(
                    x=[curve.loads[curve.knee]],
                    y=[curve.rows[curve.knee].numbers.get("p99_ttft_ms")],
                    mode="markers",
                    marker={**RING, "line": {"color": color, "width": 2}},
                    name=html.escape(f"{curve.name}, knee"),
                    showlegend=False,
                    hoverinfo="skip",
                )
            )
    return _laid_out(figure, over, "TTFT (ms)")


def _goodput(curves: Sequence[Curve], over: str) -> Any:
    import plotly.graph_objects as go

    figure = go.Figure()
    for index, curve in enumerate(curves):
        figure.add_trace(
            _trace(
                curve.loads,
                [row.numbers.get("request_goodput") for row in curve.rows],
                curve.rows,
                name=curve.name,
                color=COLORS[index % len(COLORS)],
                hover="goodput %{y:.2f} req/s",
            )
        )
    return _laid_out(figure, over, "Request goodput (req/s)")


def _trace(
    x: Sequence[float | None],
    y: Sequence[float | None],
    rows: Sequence[Row],
    *,
    name: str,
    color: str,
    hover: str,
    dash: str = "solid",
    mode: str = "lines+markers",
) -> Any:
    """Points of one kind; texts are escaped, as plotly reads them as HTML."""
    import plotly.graph_objects as go

    return go.Scatter(
        x=list(x),
        y=list(y),
        mode=mode,
        name=html.escape(name),
        line={"color": color, "dash": dash, "width": 2},
        marker={"color": color, "size": 9},
        hovertext=[html.escape(row.label) for row in rows],
        hovertemplate=f"%{{hovertext}}<br>{hover}<extra></extra>",
    )


def _laid_out(figure: Any, x: str, y: str) -> Any:
    figure.update_xaxes(title_text=html.escape(x), rangemode="tozero", gridcolor=GRID)
    figure.update_yaxes(title_text=y, rangemode="tozero", gridcolor=GRID)
    figure.update_layout(
        height=HEIGHT_PX,
        plot_bgcolor="#fff",
        margin={"t": 20, "l": 70, "r": 20},
        legend={"orientation": "h", "y": -0.2},
    )
    return figure


def _figure(name: str, figure: Any, caption: str) -> str:
    drawn = figure.to_html(
        full_html=False, include_plotlyjs=False, config={"displaylogo": False}, div_id=name
    )
    return f"<figure>{drawn}<figcaption>{html.escape(caption)}</figcaption></figure>\n"


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return f"<script>{get_plotlyjs()}</script>"


def _table(summary: Summary, analysis: Analysis) -> str:
    heads, rows = cells(summary, analysis)
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>\n"
        for row in rows
    )
    return (
        f'<h2>Points</h2><div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _list(lines: Sequence[str]) -> str:
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def _commands(rows: Sequence[Row]) -> str:
    """What was run, and how what failed ended."""
    servers = dict.fromkeys(shlex.join(row.server_flags) for row in rows)
    lines = [f"sendnn-bench sim-server MODEL {flags}".rstrip() for flags in servers]
    lines += dict.fromkeys(shlex.join(("sendnn-bench", "serve", *row.client_flags)) for row in rows)
    failed = [
        f"{row.label}: exit code {row.exit_code}: {row.message}"
        for row in rows
        if row.status == "failed"
    ]
    parts = [f"<h2>Commands</h2><pre>{html.escape(chr(10).join(lines))}</pre>"]
    if failed:
        parts.insert(0, f"<h2>Failed</h2><pre>{html.escape(chr(10).join(failed))}</pre>")
    return "\n".join(parts)
