"""The launcher's translation from a command line to the server's arguments and environment."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sendnn_bench import launch, launch_flags, models
from sendnn_bench.errors import UsageError
from server_plugin import settings

BUILTIN = "sim-granite-8b"
DIRECTORY = models.resolve(BUILTIN)
SIM = "SENDNN_INFERENCE_SIM_"
ENGINE_START = "VLLM_WORKER_MULTIPROC_METHOD"


def plan(*argv: str, inherited: dict[str, str] | None = None, spyre: bool = True):
    own, passed = launch_flags.split_flags(list(argv))
    environ = launch.environment(own, inherited or {}, spyre_installed=spyre)
    return launch.place_model(environ, passed)


def test_a_built_in_model_becomes_its_directory_and_keeps_its_name():
    environ, arguments = plan(BUILTIN, "--port", "8001")
    assert arguments == [DIRECTORY, "--port", "8001", "--served-model-name", BUILTIN]
    assert environ == {SIM + "MODE": "1", "HF_HUB_OFFLINE": "1", ENGINE_START: "fork"}


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([BUILTIN, "--served-model-name", "x"], [DIRECTORY, "--served-model-name", "x"]),
        (
            ["--served-model-name", BUILTIN, "--model", BUILTIN],
            ["--served-model-name", BUILTIN, "--model", DIRECTORY],
        ),
        (
            [f"--model={BUILTIN}"],
            [f"--model={DIRECTORY}", "--served-model-name", BUILTIN],
        ),
        (["ibm-granite/granite-3.3-8b-instruct"], ["ibm-granite/granite-3.3-8b-instruct"]),
        (["--config", "server.yaml"], ["--config", "server.yaml"]),
    ],
)
def test_where_a_model_may_be_named(argv, expected):
    assert plan(*argv)[1] == expected


def test_flags_become_variables_and_beat_the_environment():
    environ, arguments = plan(
        "--sim-prefill-ms=20",
        BUILTIN,
        "--sim-clock",
        "paced",
        "-tp",
        "4",
        "--sim-speed",
        "10",
        inherited={SIM + "PREFILL_MS": "99", SIM + "DECODE_MS": "7"},
    )
    assert arguments[:3] == [DIRECTORY, "-tp", "4"]
    assert environ == {
        SIM + "MODE": "1",
        SIM + "PREFILL_MS": "20",
        SIM + "DECODE_MS": "7",
        SIM + "CLOCK": "paced",
        SIM + "SPEED": "10",
        "HF_HUB_OFFLINE": "1",
        ENGINE_START: "fork",
    }


def test_a_user_s_way_to_start_the_engine_is_kept():
    environ, _ = plan(BUILTIN, inherited={ENGINE_START: "spawn"})
    assert environ[ENGINE_START] == "spawn"


def test_a_hub_id_keeps_the_hub_reachable_and_a_users_choice_is_kept():
    assert "HF_HUB_OFFLINE" not in plan("org/model")[0]
    assert plan(BUILTIN, inherited={"HF_HUB_OFFLINE": "0"})[0]["HF_HUB_OFFLINE"] == "0"


def test_stock_loads_our_plugin_alone():
    assert plan(BUILTIN, "--target", "stock")[0]["VLLM_PLUGINS"] == "sendnn_bench_sim"
    assert plan(BUILTIN, spyre=False)[0]["VLLM_PLUGINS"] == "sendnn_bench_sim"


@pytest.mark.parametrize(
    ("plugins", "argv", "message"),
    [
        ("sendnn_inference", [], "export VLLM_PLUGINS=sendnn_inference,sendnn_bench_sim"),
        ("sendnn_bench_sim", [], "hides sendnn_inference"),
        ("", [], "hides sendnn_bench_sim and sendnn_inference"),
        ("sendnn_bench_sim,sendnn_inference", ["--target", "stock"], "takes the place"),
    ],
)
def test_an_allow_list_that_hides_the_simulator_is_refused(plugins, argv, message):
    with pytest.raises(UsageError, match=message):
        plan(BUILTIN, *argv, inherited={"VLLM_PLUGINS": plugins})


def test_an_allow_list_that_fits_is_kept():
    plugins = "other, sendnn_inference,sendnn_bench_sim"
    assert plan(BUILTIN, inherited={"VLLM_PLUGINS": plugins})[0]["VLLM_PLUGINS"] == plugins


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "name the model first.*no arguments"),
        (["--port", "8000"], "seen: --port 8000"),
        ([BUILTIN, "--sim-clock", "fast"], "--sim-clock 'fast'.*virtual|paced|free"),
        ([BUILTIN, "--sim-prefill-ms", "-1"], "--sim-prefill-ms '-1'"),
        ([BUILTIN, "--sim-decode-ms", "nan"], "--sim-decode-ms 'nan'"),
        ([BUILTIN, "--sim-speed", "0"], "--sim-speed '0'"),
        ([BUILTIN, "--sim-speed"], "expected one argument"),
        ([BUILTIN, "--sim-profile", "/no/such/file"], "--sim-profile"),
        (["/no/such/model"], "/no/such/model does not exist"),
        ([str(Path(__file__).parent)], "has no config.json"),
    ],
)
def test_what_cannot_be_right_is_refused_at_once(argv, message):
    with pytest.raises(UsageError, match=message):
        plan(*argv)


@pytest.mark.fault(
    section="client",
    fault="the port of `sim-server` is taken",
    what="one line, before vLLM is loaded",
    exit_code=2,
)
def test_a_port_that_is_taken_is_told_in_one_line():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        command = [sys.executable, "-m", "sendnn_bench", "sim-server", BUILTIN, "--port", port]
        # Tests of the client leave it empty in this process.
        environ = {name: value for name, value in os.environ.items() if name != "VLLM_PLUGINS"}
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, env=environ
        )
    assert ended.returncode == 2
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"sendnn-bench: port {port} is taken by another program; choose another")


@pytest.mark.parametrize(
    ("argv", "address"),
    [
        ([], ("", 8000)),
        (["--port", "81", "--host=::1"], ("::1", 81)),
        (["--port=0"], None),
        (["--port", "none"], None),
        (["--uds", "/tmp/s"], None),
        (["--config", "c.yaml"], None),
        (["--config", "c.yaml", "--port", "82"], ("", 82)),
    ],
)
def test_the_address_that_must_be_free(argv, address):
    assert launch.address([BUILTIN, *argv]) == address


def test_spyre_without_its_package_is_refused():
    with pytest.raises(UsageError, match=r"sendnn-bench\[spyre\]"):
        plan(BUILTIN, "--target", "spyre", spyre=False)


def test_help_names_every_flag_and_its_variable():
    text = launch_flags.help_text()
    assert all(flag.name in text and flag.variable in text for flag in launch_flags.FLAGS)


@pytest.mark.parametrize("flag", launch_flags.FLAGS, ids=lambda flag: flag.name)
def test_every_flag_sets_a_setting_of_the_server_and_states_its_default(flag):
    known = {variable.name: variable for variable in settings.VARIABLES}
    default = known[flag.variable].default
    if default not in ("", "auto"):
        assert flag.help.endswith(f"Default: {default}.")
