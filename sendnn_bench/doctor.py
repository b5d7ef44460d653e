"""`sendnn-bench doctor`: what is installed, what gets in the way, and what to do about it.

Nothing here imports vLLM, so the answer comes at once; `--hooks` alone takes half a minute.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from sendnn_bench.errors import UsageError
from sendnn_bench.launch import ALLOW_LIST, PLUGIN, SPYRE_PLUGIN, check_allow_list
from sendnn_bench.packages import PLUGIN_GROUPS, Installed, conflicts
from sendnn_bench.protocol import INFO_ROUTE, PROTOCOL_VERSION

Status = Literal["ok", "warn", "fail"]

REINSTALL = "uv pip install --no-deps --reinstall-package sendnn-bench -e ."
HOOK_LIMIT_S = 180
HOOK_CHECK = (
    "from server_plugin import hooks; import importlib.util as u; hooks.check(hooks.COMMON); "
    "u.find_spec('sendnn_inference') and hooks.check(hooks.SPYRE)"
)
"""Run in a process of its own: the client never imports the server plugin."""


@dataclass(frozen=True)
class Check:
    """One row: what was looked at, how it is, what was seen, what to do (empty when ok)."""

    name: str
    status: Status
    seen: str
    advice: str = ""


@dataclass(frozen=True)
class Options:
    """What the user asked about."""

    port: int
    result_dir: Path
    base_url: str | None
    hooks: bool


def run_doctor(options: Options, *, as_json: bool) -> int:
    """Print every check; returns 1 if one failed, else 0."""
    checks = examine(options, Installed.here(), os.environ)
    failed = any(check.status == "fail" for check in checks)
    text = to_json(checks) if as_json else to_text(checks)
    sys.stdout.write(text + "\n")
    return 1 if failed else 0


def examine(options: Options, installed: Installed, environ: Mapping[str, str]) -> list[Check]:
    """All checks in the order of the table."""
    checks = [
        check_python(sys.version_info[:3]),
        *(check_package(name, installed) for name in ("vllm", "sendnn-inference")),
        check_compatibility(installed),
        check_script(shutil.which("sendnn-bench", path=environ.get("PATH"))),
        check_plugins(installed),
        check_environment(environ, spyre=installed.has("sendnn-inference")),
        check_port(options.port),
        check_directory(options.result_dir),
        check_browser(shutil.which("chromium") or shutil.which("chromium-browser")),
    ]
    if options.hooks:
        checks.append(check_hooks())
    if options.base_url:
        checks.append(check_server(options.base_url))
    return checks


def check_python(version: Sequence[int]) -> Check:
    """vLLM and sendnn-inference share wheels for 3.11 and 3.12."""
    text = ".".join(str(part) for part in version)
    if tuple(version[:2]) in ((3, 11), (3, 12)):
        return Check("python", "ok", text)
    return Check("python", "fail", text, "Use Python 3.11 or 3.12: `uv venv --python 3.12`.")


def check_package(name: str, installed: Installed) -> Check:
    """vllm is needed; sendnn-inference only for target spyre."""
    if installed.has(name):
        return Check(name, "ok", installed.versions[name])
    if name == "vllm":
        return Check(name, "fail", "not installed", "Run `make setup`.")
    return Check(
        name, "warn", "not installed", "Target spyre needs it: `make setup`. Target stock does not."
    )


def check_compatibility(installed: Installed) -> Check:
    """Compare what is installed with what the installed packages require of each other."""
    found = conflicts(installed)
    if not found:
        return Check("versions", "ok", "fit each other")
    return Check("versions", "fail", "; ".join(found), "Run `make clean setup`.")


def check_script(path: str | None) -> Check:
    """sendnn-inference installs a script of the same name: find out whose comes first on PATH."""
    name = "script on PATH"
    if path is None:
        return Check(
            name,
            "warn",
            "no sendnn-bench",
            f"Activate the environment, or use `{sys.executable} -m sendnn_bench`.",
        )
    text = Path(path).read_text(encoding="utf-8", errors="replace")
    if "sendnn_bench.cli" not in text:
        owner = "sendnn-inference's" if SPYRE_PLUGIN in text else "another package's"
        return Check(name, "fail", f"{path} is {owner}", f"Install ours last: `{REINSTALL}`.")
    if Path(path).resolve().parent != Path(sys.executable).parent.resolve():
        return Check(
            name, "warn", f"{path} is of another environment", f"This one is {sys.executable}."
        )
    return Check(name, "ok", path)


def check_plugins(installed: Installed) -> Check:
    """vLLM finds the simulator through entry points."""
    missing = [group for group in PLUGIN_GROUPS if PLUGIN not in installed.plugins.get(group, ())]
    if missing:
        return Check("vLLM plugins", "fail", f"missing in {', '.join(missing)}", f"`{REINSTALL}`")
    return Check("vLLM plugins", "ok", f"{PLUGIN} in {len(PLUGIN_GROUPS)} groups")


def check_environment(environ: Mapping[str, str], *, spyre: bool) -> Check:
    """VLLM_PLUGINS is an allow-list that can hide the simulator."""
    value = environ.get(ALLOW_LIST)
    if value is None:
        return Check(ALLOW_LIST, "ok", "not set")
    try:
        check_allow_list(value, "spyre" if spyre else "stock")
    except UsageError as error:
        return Check(ALLOW_LIST, "fail", repr(value), str(error))
    return Check(ALLOW_LIST, "ok", value)


def check_port(port: int) -> Check:
    """A server started without `--port` takes 8000."""
    name = f"port {port}"
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            reason = error.strerror or str(error)
            return Check(name, "warn", reason, "Start the server with another --port.")
    return Check(name, "ok", "free")


def check_directory(directory: Path) -> Check:
    """Results can be written, or the directory can be made."""
    place = directory.absolute()
    while not place.exists():
        place = place.parent
    if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
        return Check("results", "ok", f"{directory} is writable")
    what = "not writable" if place.is_dir() else "not a directory"
    return Check("results", "fail", f"{place} is {what}", "Choose another with --result-dir.")


def check_browser(path: str | None) -> Check:
    """Only the tests of the timeline need a browser."""
    if path:
        return Check("chromium", "ok", path)
    return Check(
        "chromium", "warn", "not found", "Only browser tests need it: `apt-get install chromium`."
    )


def check_hooks() -> Check:
    """Ask a child process whether every name that the plugin replaces is there."""
    environ = {**os.environ, ALLOW_LIST: ""}
    try:
        done = subprocess.run(
            [sys.executable, "-c", HOOK_CHECK],
            capture_output=True,
            text=True,
            timeout=HOOK_LIMIT_S,
            env=environ,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Check(
            "hook points", "fail", f"no answer in {HOOK_LIMIT_S} s", "Import vllm by hand."
        )
    if done.returncode == 0:
        return Check("hook points", "ok", "all present")
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return Check("hook points", "fail", last, "Install the supported versions: `make clean setup`.")


def check_server(base_url: str, timeout_s: float = 10) -> Check:
    """A simulated server answers `GET /sim/info`; a real one has no such route."""
    url = base_url.rstrip("/")
    name = f"server {url}"
    try:
        with urllib.request.urlopen(url + INFO_ROUTE, timeout=timeout_s) as response:
            info: dict[str, Any] = json.load(response)
    except urllib.error.HTTPError as error:
        advice = "Results will be in real time. To simulate, start `sendnn-bench sim-server`."
        return Check(name, "warn", f"not simulated ({INFO_ROUTE}: HTTP {error.code})", advice)
    except (OSError, ValueError) as error:
        advice = "Start it with `sendnn-bench sim-server MODEL`, or correct --base-url."
        return Check(name, "fail", f"does not answer: {error}", advice)
    if info.get("protocol") != PROTOCOL_VERSION:
        seen = f"speaks protocol {info.get('protocol')}, this client {PROTOCOL_VERSION}"
        return Check(name, "fail", seen, "Use the same sendnn-bench version on both sides.")
    seen = f"simulates {info.get('model')}, target {info.get('target')}, clock {info.get('clock')}"
    return Check(name, "ok", seen)


def to_json(checks: Sequence[Check]) -> str:
    """``{"ok": bool, "checks": [{"name", "status", "seen", "advice"}, ...]}``."""
    ok = all(check.status != "fail" for check in checks)
    return json.dumps({"ok": ok, "checks": [asdict(check) for check in checks]}, indent=2)


def to_text(checks: Sequence[Check]) -> str:
    """One line a check, and one more with what to do where it is not ok."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{check.status:<5} {check.name:<{width}}  {check.seen}")
        if check.advice:
            lines.append(f"{'':<5} {'':<{width}}  -> {check.advice}")
    return "\n".join(lines)
