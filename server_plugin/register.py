"""Entry points that vLLM loads. Safe to import: imports nothing that can fail, does nothing unless
simulation is switched on."""

from __future__ import annotations

import os
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn

from sendnn_bench.errors import UsageError
from server_plugin import settings

if TYPE_CHECKING:
    from server_plugin.http.routes import SimEndpoints

PLUGIN = "sendnn_bench_sim"
ALLOW_LIST = "VLLM_PLUGINS"


def register() -> None:
    """`vllm.general_plugins`: runs in every vLLM process."""
    try:
        if not settings.enabled(os.environ):
            return
        loaded = settings.load(os.environ)
        target = resolve_target(loaded)
        if loaded.parity:
            os.environ["SENDNN_INFERENCE_BENCH_METRICS_ENABLED"] = "1"
        _allow_own_endpoints()
        from server_plugin.engine import install

        install.install_engine()
        if target == "spyre":
            install.install_spyre()
    except UsageError as error:
        stop(error)


def platform_plugin() -> str | None:
    """`vllm.platform_plugins`: the stock target's platform, where that is chosen."""
    return None


def endpoint_plugin() -> SimEndpoints | Any:
    """`vllm.endpoint_plugins`: the /sim routes."""
    from server_plugin.http.routes import SimEndpoints

    return SimEndpoints()


def resolve_target(loaded: settings.SimSettings) -> str:
    """`spyre` or `stock`.

    Raises:
        UsageError: spyre is asked for and sendnn-inference is not installed.
    """
    installed = find_spec("sendnn_inference") is not None
    if loaded.target == "spyre" and not installed:
        raise UsageError(
            "target spyre needs sendnn-inference, which is not installed. Install "
            "`sendnn-bench[spyre]`, or choose target stock."
        )
    if loaded.target == "auto":
        return "spyre" if installed else "stock"
    return loaded.target


def _allow_own_endpoints() -> None:
    """vLLM loads endpoint plugins only when they are named in its allow-list, which is also the
    allow-list of all other plugin groups: where it is unset, name everything that would load."""
    if ALLOW_LIST in os.environ:
        return
    groups = (
        "vllm.general_plugins",
        "vllm.platform_plugins",
        "vllm.stat_logger_plugins",
        "vllm.io_processor_plugins",
    )
    names = {entry.name for group in groups for entry in entry_points(group=group)}
    os.environ[ALLOW_LIST] = ",".join(sorted(names | {PLUGIN}))


def stop(error: UsageError) -> NoReturn:
    """End this process with the one message; vLLM would bury an exception in tracebacks."""
    sys.stderr.write(f"sendnn-bench: {error}\n")
    sys.stderr.flush()
    sys.exit(error.exit_code)
