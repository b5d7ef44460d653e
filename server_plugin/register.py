"""Entry points that vLLM loads. Safe to import: imports nothing that can fail, does nothing unless
simulation is switched on."""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from sendnn_bench.errors import UsageError
from server_plugin import logs, settings
from server_plugin.refusal import stop, stopping

if TYPE_CHECKING:
    from server_plugin.http.routes import SimEndpoints

ALLOW_LIST = "VLLM_PLUGINS"
STOCK_PLATFORM = "server_plugin.engine.stock_platform.SimStockPlatform"


def register() -> None:
    """`vllm.general_plugins`: runs in every vLLM process."""
    with stopping():
        if not settings.enabled(os.environ):
            return
        logs.show_with_vllm()
        loaded = settings.load(os.environ)
        target = settings.resolve_target(loaded)
        if loaded.parity:
            os.environ["SENDNN_INFERENCE_BENCH_METRICS_ENABLED"] = "1"
        _allow_own_endpoints()
        from server_plugin.engine import install

        install.install_engine()
        if target == "spyre":
            install.install_spyre()
        else:
            install.install_stock()


def platform_plugin() -> str | None:
    """`vllm.platform_plugins`: the stock target's platform, where that is chosen."""
    with stopping():
        if not settings.enabled(os.environ):
            return None
        if settings.resolve_target(settings.load(os.environ)) != "stock":
            return None
        _check_only_platform()
    return STOCK_PLATFORM


def endpoint_plugin() -> SimEndpoints | Any:
    """`vllm.endpoint_plugins`: the /sim routes."""
    try:
        from server_plugin.http.routes import SimEndpoints
    except Exception as error:
        # vLLM would log it and serve without the routes: a simulation that nobody can tell of.
        if settings.enabled(os.environ):
            stop(UsageError(f"the /sim routes cannot be loaded: {type(error).__name__}: {error}."))
        raise
    return SimEndpoints()


def _check_only_platform() -> None:
    """vLLM takes one platform plugin, and sendnn-inference's would be loaded beside ours.

    Raises:
        UsageError: that is the case.
    """
    allowed = os.environ.get(ALLOW_LIST)
    spyre = settings.SPYRE_PACKAGE
    named = allowed is None or spyre in [name.strip() for name in allowed.split(",")]
    if named and settings.spyre_installed():
        raise UsageError(
            f"target stock cannot run beside the platform of {spyre}, which is installed and which "
            f"vLLM loads where {ALLOW_LIST} is {allowed or 'unset'}. Export "
            f"{ALLOW_LIST}={settings.PLUGIN}, or start the server with "
            "`sendnn-bench sim-server --target stock`."
        )


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
    os.environ[ALLOW_LIST] = ",".join(sorted(names | {settings.PLUGIN}))
