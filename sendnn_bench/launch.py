"""`sendnn-bench sim-server`: `vllm serve` with simulation switched on, without variables to export.

The launcher only translates: its own flags become environment variables, a built-in model's name
becomes a directory, and everything else reaches `vllm serve` as it was typed. The process then
becomes the server, so that its signals and its exit code are the server's.
"""

from __future__ import annotations

import argparse
import errno
import os
import shlex
import socket
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from sendnn_bench import models
from sendnn_bench.errors import UsageError
from sendnn_bench.launch_flags import PREFIX, TARGET, help_text, split_flags

PLUGIN = "sendnn_bench_sim"
SPYRE_PLUGIN = "sendnn_inference"
ALLOW_LIST = "VLLM_PLUGINS"

ENGINE_START = "VLLM_WORKER_MULTIPROC_METHOD"
"""How vLLM starts its engine process. `vllm serve` chooses `spawn` where it is unset, which imports
vLLM a second time; no accelerator is in use here that a fork would break."""


def run_sim_server(argv: list[str]) -> None:
    """Become `vllm serve` with simulation on; returns only after printing help.

    Raises:
        UsageError: a value of ours is wrong, no model is named, the target is not installed, or
            the user's VLLM_PLUGINS hides the simulator, or the port is taken.
    """
    own, passed = split_flags(argv)
    if {"-h", "--help"} & set(passed):
        sys.stdout.write(help_text())
        return
    if find_spec("vllm") is None:
        raise UsageError("vllm is not installed for this Python. Install it, or run `make demo`.")
    environ = environment(own, os.environ, spyre_installed=find_spec(SPYRE_PLUGIN) is not None)
    environ, arguments = place_model(environ, passed)
    check_address(passed)
    become([sys.executable, "-P", "-m", "vllm.entrypoints.cli.main", "serve", *arguments], environ)


def environment(
    own: Mapping[str, str], inherited: Mapping[str, str], *, spyre_installed: bool
) -> dict[str, str]:
    """The server's environment: inherited variables, beaten by our flags.

    Raises:
        UsageError: target spyre is not installed, or VLLM_PLUGINS does not fit the target.
    """
    environ = {ENGINE_START: "fork", **inherited, **own, PREFIX + "MODE": "1"}
    target = environ.get(TARGET, "auto")
    if target == "auto":
        target = "spyre" if spyre_installed else "stock"
    if target == "spyre" and not spyre_installed:
        raise UsageError(
            "target spyre needs sendnn-inference, which is not installed. Install the extra "
            "`sendnn-bench[spyre]`, or choose --target stock."
        )
    if ALLOW_LIST not in environ:
        # For spyre unset is right: vLLM then loads both plugins, and ours names itself.
        return {**environ, ALLOW_LIST: PLUGIN} if target == "stock" else environ
    check_allow_list(environ[ALLOW_LIST], target)
    return environ


def check_allow_list(value: str, target: str) -> None:
    """Compare the user's VLLM_PLUGINS with what the target needs.

    Raises:
        UsageError: a plugin is missing, or spyre's platform would take the place of stock's.
    """
    named = {name.strip() for name in value.split(",") if name.strip()}
    needed = [PLUGIN, SPYRE_PLUGIN] if target == "spyre" else [PLUGIN]
    missing = [name for name in needed if name not in named]
    if missing:
        wanted = ",".join([*sorted(named), *missing])
        raise UsageError(
            f"{ALLOW_LIST}={value!r} hides {' and '.join(missing)} from vLLM, so nothing would be "
            f"simulated. Unset {ALLOW_LIST}, or export {ALLOW_LIST}={wanted}."
        )
    if target == "stock" and SPYRE_PLUGIN in named:
        raise UsageError(
            f"{ALLOW_LIST}={value!r} loads {SPYRE_PLUGIN}, whose platform takes the place of "
            f"target stock. Unset {ALLOW_LIST}, or choose --target spyre."
        )


def place_model(environ: Mapping[str, str], passed: list[str]) -> tuple[dict[str, str], list[str]]:
    """Put a built-in model's directory in place of its name, and keep vLLM off the hub for it.

    Raises:
        UsageError: no model is named first, by `--model` or in a `--config` file.
    """
    position, name = named_model(passed)
    resolved = models.resolve(name)
    check_model(resolved)
    arguments = list(passed)
    if resolved != name:
        arguments[position] = passed[position].removesuffix(name) + resolved
        if not _given(passed, "--served-model-name"):
            arguments += ["--served-model-name", name]
    offline = {"HF_HUB_OFFLINE": "1"} if resolved and Path(resolved).is_dir() else {}
    return {**offline, **environ}, arguments


def check_model(name: str) -> None:
    """Find a mistyped directory now: vLLM would take half a minute to ask the hub for it.

    Raises:
        UsageError: `name` looks like a path but is no model directory.
    """
    path = Path(name)
    is_path = name.startswith(("/", "./", "../")) or path.is_dir()
    if name and is_path and not (path / "config.json").is_file():
        seen = "has no config.json" if path.is_dir() else "does not exist"
        raise UsageError(
            f"model directory {name} {seen}. A simulated model needs config.json and a tokenizer; "
            f"built in: {', '.join(models.BUILTIN)}."
        )


def named_model(passed: list[str]) -> tuple[int, str]:
    """Where the model is named, and its name: the first argument, or the value of `--model`.

    Where a `--config` file has it, the name is empty.

    Raises:
        UsageError: no model is named.
    """
    if passed and not passed[0].startswith("-"):
        return 0, passed[0]
    for position, argument in enumerate(passed):
        if argument == "--model" and position + 1 < len(passed):
            return position + 1, passed[position + 1]
        if argument.startswith("--model="):
            return position, argument.removeprefix("--model=")
    if _given(passed, "--config"):
        return 0, ""
    raise UsageError(
        f"name the model first, such as `sendnn-bench sim-server {models.BUILTIN[0]}`; "
        f"seen: {shlex.join(passed) or 'no arguments'}."
    )


def _given(passed: list[str], flag: str) -> bool:
    return any(argument == flag or argument.startswith(flag + "=") for argument in passed)


def check_address(passed: list[str]) -> None:
    """Find a port that is taken now: vLLM would share it with another vLLM without a word.

    Raises:
        UsageError: another program listens there.
    """
    place = address(passed)
    if place is None:
        return
    host, port = place
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:  # vLLM's own message tells the rest
                raise UsageError(
                    f"port {port} is taken by another program; choose another --port."
                ) from error


def address(passed: list[str]) -> tuple[str, int] | None:
    """Host and port of the server to come; None where they are not known here."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for flag in ("--host", "--port", "--uds", "--config"):
        parser.add_argument(flag)
    try:
        known, _ = parser.parse_known_args(passed)
        port = int(known.port or 8000)
    except (argparse.ArgumentError, ValueError):
        return None  # vLLM tells what is wrong with them
    unknown = known.uds is not None or (known.config is not None and known.port is None)
    return None if unknown or port == 0 else (known.host or "", port)


def become(command: list[str], environ: dict[str, str]) -> NoReturn:
    """Replace this process with the server."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvpe(command[0], command, environ)
