"""Output that cannot be written: one clear line, or none, and never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-m", "sendnn_bench"]
LIMIT_S = 60


@pytest.mark.fault(
    section="files",
    fault="stdout on a full disk",
    what="one line with the system's reason",
    exit_code=5,
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("argv", [["describe-metrics"], ["--version"], ["serve", "--help"]])
def test_stdout_on_a_full_disk(argv: list[str], unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [*COMMAND, *argv],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=LIMIT_S,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            check=False,
        )
    assert ended.stderr == "sendnn-bench: stdout cannot be written: No space left on device.\n"
    assert ended.returncode == 5


@pytest.mark.fault(
    section="files",
    fault="reader of stdout gone (`| head`)",
    what="nothing is said",
    exit_code=141,
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("argv", [["describe-metrics"], ["--version"]])
def test_a_reader_that_went_away(argv: list[str], unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [*COMMAND, *argv],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=LIMIT_S,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        check=False,
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, "")
