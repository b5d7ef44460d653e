"""The README's command, run in full: it works, its figures are the README's, nothing stays."""

import json
import os
import re
import socket
import subprocess
from pathlib import Path

import pytest

from sendnn_bench.launch import ALLOW_LIST
from sendnn_bench.server_process import own_command

ROOT = Path(__file__).parents[2]
LIMIT_S = 540


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    directory = tmp_path_factory.mktemp("demo")
    command = own_command("demo", "--result-dir", str(directory))
    # Tests that run the client in this process leave its allow-list behind.
    environ = {name: value for name, value in os.environ.items() if name != ALLOW_LIST}
    done = subprocess.run(
        command,
        cwd=directory,
        env=environ,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return directory, done


pytestmark = [pytest.mark.e2e, pytest.mark.timeout(LIMIT_S + 60)]


def test_both_parts_leave_a_result_and_say_how_fast_they_were(demo):
    directory, done = demo
    for name in ("demo-rate-2.json", "demo-concurrency-8.json"):
        result = json.loads((directory / name).read_text())
        assert result["completed"] == 200
        assert f"{result['duration']:.1f} virtual seconds ran in" in done.stdout


def test_the_output_in_the_readme_is_what_is_printed(demo):
    _, done = demo
    readme = (ROOT / "README.md").read_text()
    shown = re.search(r"```text\n(=== 200 requests, open loop.*?)\n\.\.\.\n", readme, re.DOTALL)
    assert shown is not None
    printed = iter([line.rstrip() for line in done.stdout.splitlines()])
    missing = [line for line in shown[1].splitlines() if line not in printed]
    assert missing == []


def test_the_server_is_gone(demo):
    _, done = demo
    port = int(re.search(r"http://127\.0\.0\.1:(\d+)", done.stdout)[1])
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
