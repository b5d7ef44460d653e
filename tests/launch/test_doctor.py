"""Each check of the doctor, healthy and ill."""

import http.server
import json
import socket
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from sendnn_bench import doctor
from sendnn_bench.packages import PLUGIN_GROUPS, Installed, conflicts
from sendnn_bench.protocol import PROTOCOL_VERSION
from sendnn_bench.server_process import free_port

FIT = Installed(
    versions={"sendnn-bench": "0.1.0", "vllm": "0.28.0", "sendnn-inference": "2.6.3"},
    requires={
        "sendnn-bench": (
            "vllm<0.34,>=0.28",
            "numpy>=2",
            'sendnn-inference<2.7,>=2.6; extra == "spyre"',
        ),
        "sendnn-inference": ("vllm<0.28.1,>=0.26.0", "torch"),
    },
    plugins=dict.fromkeys(PLUGIN_GROUPS, ("sendnn_bench_sim",)),
)


def with_versions(**versions: str) -> Installed:
    renamed = {name.replace("_", "-"): version for name, version in versions.items()}
    return Installed({**FIT.versions, **renamed}, FIT.requires, FIT.plugins)


def test_versions_that_fit_have_no_conflicts():
    assert conflicts(FIT) == []
    assert doctor.check_compatibility(FIT).status == "ok"


@pytest.mark.parametrize(
    ("installed", "expected"),
    [
        (
            with_versions(vllm="0.30.1"),
            ["sendnn-inference 2.6.3 needs vllm<0.28.1,>=0.26.0, installed is 0.30.1"],
        ),
        (
            with_versions(sendnn_inference="2.7.0"),
            ["sendnn-bench 0.1.0 needs sendnn-inference<2.7,>=2.6, installed is 2.7.0"],
        ),
        (with_versions(vllm="0.28.0+cpu"), []),
    ],
)
def test_conflicts_name_who_needs_what(installed, expected):
    assert conflicts(installed) == expected
    assert doctor.check_compatibility(installed).status == ("fail" if expected else "ok")


def test_this_environment_has_the_simulator_in_every_group():
    assert doctor.check_plugins(Installed.here()).status == "ok"


def test_a_missing_entry_point_is_named():
    installed = Installed(FIT.versions, FIT.requires, {"vllm.general_plugins": ("other",)})
    check = doctor.check_plugins(installed)
    assert check.status == "fail"
    assert "vllm.general_plugins" in check.seen


@pytest.mark.parametrize(
    ("version", "status"),
    [((3, 10, 1), "fail"), ((3, 11, 7), "ok"), ((3, 12, 0), "ok"), ((3, 13, 0), "fail")],
)
def test_python(version, status):
    assert doctor.check_python(version).status == status


def test_packages_that_are_missing():
    nothing = Installed({}, {}, {})
    assert doctor.check_package("vllm", nothing).status == "fail"
    assert doctor.check_package("sendnn-inference", nothing).status == "warn"
    assert doctor.check_package("vllm", FIT).seen == "0.28.0"


@pytest.mark.parametrize(
    ("text", "status", "seen"),
    [
        ("from sendnn_bench.cli import main", "warn", "of another environment"),
        ("from sendnn_inference.benchmarks import main", "fail", "is sendnn-inference's"),
        ("echo", "fail", "is another package's"),
    ],
)
def test_whose_script_is_on_the_path(tmp_path, text, status, seen):
    script = tmp_path / "sendnn-bench"
    script.write_text(text)
    check = doctor.check_script(str(script))
    assert (check.status, seen in check.seen) == (status, True)


def test_the_script_beside_this_python_is_ours():
    assert doctor.check_script(str(Path(sys.executable).with_name("sendnn-bench"))).status == "ok"
    assert doctor.check_script(None).status == "warn"


def test_an_allow_list_that_hides_the_simulator():
    check = doctor.check_environment({"VLLM_PLUGINS": "sendnn_inference"}, spyre=True)
    assert check.status == "fail"
    assert "VLLM_PLUGINS=sendnn_inference,sendnn_bench_sim" in check.advice
    assert doctor.check_environment({}, spyre=True).status == "ok"


def test_a_port_that_is_taken():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert doctor.check_port(taken.getsockname()[1]).status == "warn"
    assert doctor.check_port(free_port()).status == "ok"


def test_a_result_directory(tmp_path):
    assert doctor.check_directory(tmp_path / "new" / "deep").status == "ok"
    (tmp_path / "file").write_text("")
    check = doctor.check_directory(tmp_path / "file" / "below")
    assert (check.status, check.seen) == ("fail", f"{tmp_path / 'file'} is not a directory")


def test_a_browser():
    assert doctor.check_browser(None).status == "warn"
    assert doctor.check_browser("/usr/bin/chromium").status == "ok"


@contextmanager
def server(status: int, body: object):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status if self.path == "/sim/info" else 404)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *args):
            """Keep the test's output clean."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as fake:
        thread = threading.Thread(target=fake.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{fake.server_port}/"
        finally:
            fake.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "body", "expected", "seen"),
    [
        (
            200,
            {"protocol": PROTOCOL_VERSION, "model": "m", "target": "spyre", "clock": "virtual"},
            "ok",
            "simulates m, target spyre, clock virtual",
        ),
        (200, {"protocol": PROTOCOL_VERSION + 1}, "fail", "speaks protocol"),
        (404, {"detail": "Not Found"}, "warn", "not simulated (/sim/info: HTTP 404)"),
    ],
)
def test_a_server(status, body, expected, seen):
    with server(status, body) as url:
        check = doctor.check_server(url)
    assert (check.status, seen in check.seen) == (expected, True)


def test_a_server_that_is_not_there():
    check = doctor.check_server(f"http://127.0.0.1:{free_port()}")
    assert check.status == "fail"
    assert "does not answer" in check.seen


def test_one_failed_check_decides_the_exit_code(tmp_path, capsys):
    options = doctor.Options(
        port=free_port(),
        result_dir=tmp_path,
        base_url=f"http://127.0.0.1:{free_port()}",
        hooks=False,
    )
    assert doctor.run_doctor(options, as_json=True) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    assert answer["checks"][-1]["status"] == "fail"
    assert {"name", "status", "seen", "advice"} == set(answer["checks"][0])


def test_the_table_says_what_to_do_below_the_row():
    rows = [doctor.Check("a", "ok", "seen"), doctor.Check("longer", "warn", "bad", "do this")]
    assert doctor.to_text(rows).splitlines() == [
        "ok    a       seen",
        "warn  longer  bad",
        "              -> do this",
    ]
