"""A stand-in for the name `time` in one module of vLLM or sendnn-inference.

The module then measures virtual time, unmodified; `time` itself is never patched.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from server_plugin.sim.clock import NS_PER_S

EPOCH_S = 1.0
"""Virtual time 0 as vLLM sees it: above 0, which vLLM takes for "unset" in places."""


def to_module_s(virtual_ns: int) -> float:
    """Virtual time as the modules see it, in seconds."""
    return EPOCH_S + virtual_ns / NS_PER_S


class ModuleTime:
    """`time()`, `monotonic()` and `perf_counter()` tell ``now_s``; the rest is the real module."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.time = self.monotonic = self.perf_counter = now_s

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)
