"""Starting, awaiting and stopping a server, with small child processes in the server's place."""

import os
import select
import sys
from pathlib import Path

import pytest

from sendnn_bench.errors import ServerUnreachable
from sendnn_bench.server_process import free_port, own_command, running

HEALTHY = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""

DEAF = """
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
signal.pause()
"""


def no_wait(waited_s: float) -> None:
    """Stands for the progress display."""


def start(code: str, tmp_path: Path, port: int = 0):
    command = [sys.executable, "-c", code, str(port)]
    return running(command, f"http://127.0.0.1:{port}", tmp_path / "logs" / "server.log")


def test_a_server_that_answers_is_awaited_and_stopped(tmp_path):
    port = free_port()
    with start(HEALTHY, tmp_path, port) as server:
        assert server.wait_until_healthy(no_wait, limit_s=30) < 30
        assert server.process.poll() is None
    assert server.process.poll() is not None


def test_a_server_that_dies_shows_the_end_of_its_log(tmp_path):
    code = "import sys; print('no such model'); sys.exit(7)"
    with (
        start(code, tmp_path, free_port()) as server,
        pytest.raises(ServerUnreachable, match=r"(?s)exit code 7.*no such model"),
    ):
        server.wait_until_healthy(no_wait, limit_s=30)


def test_a_server_that_never_answers_is_given_up(tmp_path):
    waits = []
    with (
        start("import signal; signal.pause()", tmp_path, free_port()) as server,
        pytest.raises(ServerUnreachable, match=r"did not answer .*/health within 0.3 s"),
    ):
        server.wait_until_healthy(waits.append, limit_s=0.3)
    assert waits


def test_a_server_that_ignores_the_request_to_end_is_killed(tmp_path):
    with start(DEAF, tmp_path) as server:
        while "deaf" not in server.log.read_text():
            assert server.process.poll() is None
        server.stop(limit_s=0.2)
        assert server.process.returncode == -9


def test_children_of_the_server_are_ended_too(tmp_path):
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "print(child.pid, flush=True)\n"
        "import signal; signal.pause()\n"
    )
    with start(code, tmp_path) as server:
        while not (text := server.log.read_text()).endswith("\n"):
            assert server.process.poll() is None
        child = os.pidfd_open(int(text))
    try:
        ended, _, _ = select.select([child], [], [], 30)
    finally:
        os.close(child)
    assert ended


def test_an_error_inside_stops_the_server(tmp_path):
    with (
        pytest.raises(RuntimeError, match="in mid-run"),
        start("import signal; signal.pause()", tmp_path) as server,
    ):
        raise RuntimeError("in mid-run")
    assert server.process.poll() is not None


def test_extra_environment_reaches_the_server(tmp_path):
    log = tmp_path / "log"
    code = "import os; print(os.environ['EXTRA'], os.environ['PATH'])"
    with running([sys.executable, "-c", code], "", log, {"EXTRA": "seen"}) as server:
        server.process.wait(30)
    assert log.read_text().strip() == f"seen {os.environ['PATH']}"


def test_our_own_command_does_not_depend_on_the_path():
    assert own_command("serve") == [sys.executable, "-m", "sendnn_bench", "serve"]
