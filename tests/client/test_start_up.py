"""Help comes at once: nothing slow is imported for it."""

from __future__ import annotations

import json
import subprocess
import sys

SLOW = ("vllm", "torch", "numpy", "scipy", "plotly", "aiohttp", "rich")

PROGRAM = f"""
import contextlib, io, json, sys
from sendnn_bench.cli import app
found = {{}}
for name in ("", "timeline", "compare", "calibrate", "report", "doctor", "serve", "sim-server"):
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        app([*name.split(), "--help"], standalone_mode=False)
    found[name] = [bool(output.getvalue()), *(s for s in {SLOW!r} if s in sys.modules)]
print(json.dumps(found))
"""


def test_help_imports_nothing_slow() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    found = json.loads(done.stdout)
    assert found == {name: [True] for name in found}
    assert len(found) == 8
