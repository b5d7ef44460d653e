"""`sendnn-bench compare`: read results, compare all with the first, print or write."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from sendnn_bench.errors import UsageError
from sendnn_bench.report.compare import Comparison, Options, compare
from sendnn_bench.report.compare_text import print_table, render_json, render_markdown
from sendnn_bench.results import load, write_atomically

Renderer = Callable[[Sequence[Comparison], float], str]


def _plain_table(comparisons: Sequence[Comparison], tolerance: float) -> str:
    out = io.StringIO()
    print_table(comparisons, tolerance, out)
    return out.getvalue()


def _html(comparisons: Sequence[Comparison], tolerance: float) -> str:
    from sendnn_bench.report.compare_html import render_html

    return render_html(comparisons, tolerance)


RENDERERS: dict[str, Renderer] = {
    "table": _plain_table,
    "json": render_json,
    "md": render_markdown,
    "html": _html,
}
SUFFIXES = {".json": "json", ".md": "md", ".html": "html", ".htm": "html"}


def check_count(paths: Sequence[Path]) -> None:
    """There has to be something to compare.

    Raises:
        UsageError: fewer than two results.
    """
    if len(paths) < 2:
        raise UsageError("compare needs at least two results: sendnn-bench compare A.json B.json")


def run_compare(
    paths: Sequence[Path],
    options: Options,
    form: str | None = None,
    output: Path | None = None,
    fail_over: bool = False,
) -> int:
    """Compare every result with the first; the exit code, 1 where ``fail_over`` finds too much.

    Raises:
        ResultError: a file cannot be read or written.
        UsageError: fewer than two results, or a page without a file to go to.
    """
    check_count(paths)
    form = form or (SUFFIXES.get(output.suffix.lower(), "table") if output else "table")
    if form == "html" and output is None:
        raise UsageError("--format html needs a file to write: -o FILE.html")
    base, *others = [load(path) for path in paths]
    found = [compare(base, other, options) for other in others]
    if output is not None:
        write_atomically(output, RENDERERS[form](found, options.tolerance))
        sys.stderr.write(f"Comparison: {output}\n")
    elif form == "table":
        print_table(found, options.tolerance, sys.stdout)
    else:
        sys.stdout.write(RENDERERS[form](found, options.tolerance))
    return 1 if fail_over and any(c.beyond(options.tolerance) for c in found) else 0
