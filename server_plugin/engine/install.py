"""Puts the plugin's hooks in place, once per process."""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Callable
from typing import Any

from vllm.v1.engine.core import EngineCore, EngineCoreProc

from server_plugin import hooks
from server_plugin.engine import core
from server_plugin.refusal import stopping

MARK = "_sendnn_sim_installed"


def wrap(owner: type, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace a method by ``wrapper(original, self, ...)``."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return wrapper(original, self, *args, **kwargs)

    setattr(owner, name, call)


def install_engine() -> None:
    """Gate and control calls on EngineCore. Does nothing the second time."""
    if getattr(EngineCoreProc, MARK, False):
        return
    hooks.check_versions()
    hooks.check(hooks.COMMON)
    EngineCore.sim_original_add_request = EngineCore.add_request
    for name, wrapper in core.WRAPPERS.items():
        owner = EngineCoreProc if name in vars(EngineCoreProc) else EngineCore
        wrap(owner, name, wrapper)
    for name, method in core.METHODS.items():
        setattr(EngineCoreProc, name, method)
    setattr(EngineCoreProc, MARK, True)


def install_spyre() -> None:
    """Our classes into SpyrePlatform's configuration. Does nothing the second time."""
    from sendnn_inference.platform import SpyrePlatform

    if getattr(SpyrePlatform, MARK, False):
        return
    hooks.check(hooks.SPYRE)
    original = SpyrePlatform.check_and_update_config

    def configure(cls: type, vllm_config: Any) -> None:
        # Here, not at import: upstream's scheduler can only be imported once the platform is set.
        from server_plugin.engine import spyre

        with stopping():
            spyre.check_and_update_config(original, vllm_config)
        install_http()

    SpyrePlatform.check_and_update_config = classmethod(configure)
    setattr(SpyrePlatform, MARK, True)


def install_stock() -> None:
    """The platform puts its own classes in; here only the names it relies on are checked."""
    hooks.check(hooks.STOCK)


def install_http() -> None:
    """Hooks of the API server process, after upstream's own so that ours are outermost."""
    if multiprocessing.parent_process() is None:
        from server_plugin.http import install

        install.install_http()
