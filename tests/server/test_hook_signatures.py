"""Every name of vLLM and sendnn-inference that the plugin touches takes what the plugin expects.

`hook_signatures.json` holds the parameters as they were when the plugin was written against them:
a hook whose parameters changed is named, before a run finds out. After a look at the code behind
it: `python -m tests.server.test_hook_signatures` writes the file anew.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from server_plugin import hooks

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

EXPECTED = Path(__file__).with_name("hook_signatures.json")
LIMIT_S = 500
ENVIRONMENT = {"VLLM_PLUGINS": "sendnn_inference", "HF_HUB_OFFLINE": "1"}
"""Upstream's modules can only be imported where its platform is the active one."""


def parameters(found: Any) -> list[str] | None:
    """Names of a callable's parameters, `*` and `**` before those that collect; None for data."""
    if not callable(found):
        return None
    marks = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    signature = inspect.signature(found)
    return [marks.get(item.kind, "") + item.name for item in signature.parameters.values()]


def installed() -> dict[str, list[str] | None]:
    """Parameters of every hook, in this process."""
    from vllm.platforms import current_platform

    assert current_platform is not None
    rows = (*hooks.COMMON, *hooks.SPYRE, *hooks.STOCK)
    return {hook.place: parameters(hooks.find(hook)) for hook in rows}


@pytest.fixture(scope="module")
def seen() -> dict[str, list[str] | None]:
    """As `installed`, in a process of its own."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.server.test_hook_signatures", "--print"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=os.environ | ENVIRONMENT,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return dict(json.loads(ended.stdout.splitlines()[-1]))


PLACES = [hook.place for hook in (*hooks.COMMON, *hooks.SPYRE, *hooks.STOCK)]


@pytest.mark.parametrize("place", PLACES)
def test_a_hook_takes_what_it_took(seen: dict[str, list[str] | None], place: str) -> None:
    expected = json.loads(EXPECTED.read_text())
    assert place in expected, f"{place} is new: write hook_signatures.json anew"
    assert seen[place] == expected[place], f"{place} changed; look at what the plugin does there"


def test_no_signature_is_left_over() -> None:
    assert set(json.loads(EXPECTED.read_text())) == set(PLACES)


if __name__ == "__main__":
    text = installed()
    if "--print" in sys.argv:
        print(json.dumps(text))
    else:
        EXPECTED.write_text(json.dumps(text, indent=1) + "\n")
