"""The page of `compare` in a real browser: nothing in a result runs as script."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from sendnn_bench.report.compare import Options
from sendnn_bench.report.compare_command import run_compare
from tests.compare.test_compare import BASE
from tests.timeline.browser import chromium

pytestmark = pytest.mark.browser

EVIL = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>"


def test_nothing_in_a_result_runs(tmp_path: Path) -> None:
    evil = copy.deepcopy(BASE)
    evil |= {"model_id": EVIL, "label": EVIL, "backend": EVIL, "tokenizer_id": EVIL}
    evil["sendnn"] |= {
        "cost_model": {"kind": EVIL, EVIL: EVIL},
        "versions": {"vllm": EVIL, EVIL: EVIL},
        "settings": {EVIL: EVIL},
        "command": ["sendnn-bench", "serve", "--dataset-name", EVIL],
    }
    paths = [tmp_path / "a.json", tmp_path / "<img src=x onerror='window.hacked=1'>.json"]
    for path, data in zip(paths, (BASE, evil), strict=True):
        path.write_text(json.dumps(data))
    page_path = tmp_path / "page.html"
    run_compare(paths, Options(replicates=10), output=page_path)
    with chromium() as browser:
        page = browser.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(page_path.as_uri(), wait_until="load")
        page.wait_for_selector(".plotly .legend, .main-svg", state="attached")
        assert page.evaluate("window.hacked") is None
        assert page.locator("img").count() == 0
        assert EVIL in page.inner_text("body")
        assert problems == []
