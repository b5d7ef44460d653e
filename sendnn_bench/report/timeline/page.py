"""The page: one self-contained HTML file that works offline."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from importlib.resources import files
from string import Template

from sendnn_bench.report.timeline.content import columns, head
from sendnn_bench.report.timeline.model import Timeline
from sendnn_bench.report.timeline.payload import compress, encode
from sendnn_bench.report.timeline.summary import kind_table, notes, run_table, slowest_table

_SCRIPTS = ("data.js", "format.js", "paint.js", "marks.js", "figure.js", "controls.js", "main.js")
"""Parts of the page's one script, in order of their use."""


def render(timeline: Timeline, thresholds_ms: tuple[float, float] | None) -> str:
    """The page as text. The same timeline gives the same bytes."""
    from plotly.offline import get_plotlyjs

    script = "\n".join(_asset(name) for name in _SCRIPTS)
    model = timeline.result.data.get("model_id") or "unknown model"
    return Template(_asset("page.html")).substitute(
        title=escape(f"Timeline: {model}", quote=True),
        heading=escape(str(model), quote=True),
        script_hash=_csp_hash(script),
        plotly_hash=_csp_hash(get_plotlyjs()),
        style=_asset("page.css"),
        notes=notes(timeline),
        run_table=run_table(timeline),
        kind_table=kind_table(timeline),
        slowest_table=slowest_table(timeline),
        data=encode(head(timeline, thresholds_ms), columns(timeline)),
        plotly=compress(get_plotlyjs().encode()),
        script=script,
    )


def _asset(name: str) -> str:
    return files("sendnn_bench.report.timeline").joinpath(name).read_text(encoding="utf-8")


def _csp_hash(script: str) -> str:
    """Source expression that lets exactly this inline script run."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
