"""The command line as a whole: what it loads, and its completion in the shell."""

import os
import subprocess
import sys

import pytest

BLOCKED = """
import sys
for name in ("vllm", "torch", "numpy", "scipy", "plotly"):
    sys.modules[name] = None  # importing it raises
from sendnn_bench.cli import main
main()
"""


def run(*command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("command", ["--help", "--version", "describe-metrics", "serve --help"])
def test_a_command_that_only_tells_imports_nothing_slow(command):
    done = run(sys.executable, "-P", "-c", BLOCKED, *command.split())
    assert (done.returncode, done.stderr) == (0, "")


def completed(line: str) -> list[str]:
    done = run(
        *(sys.executable, "-P", "-m", "sendnn_bench"),
        _SENDNN_BENCH_COMPLETE="complete_bash",
        COMP_WORDS=line,
        COMP_CWORD=str(len(line.split(" ")) - 1),
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_commands_and_options_are_completed():
    assert completed("sendnn-bench ca") == ["calibrate"]
    assert {"describe-metrics", "demo", "doctor"} <= set(completed("sendnn-bench d"))
    assert completed("sendnn-bench compare --to") == ["--tolerance"]


def test_the_completion_to_install_is_for_our_name():
    done = run(
        *(sys.executable, "-P", "-m", "sendnn_bench", "--show-completion", "bash"),
        # The shell is named: a test's parent need not be one.
        _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1",
    )
    assert done.returncode == 0
    assert "_SENDNN_BENCH_COMPLETE=complete_bash" in done.stdout
    assert done.stdout.rstrip().endswith("sendnn-bench")
