"""vLLM's progress bar, which counts requests in real time, tells of virtual time as well."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tqdm.asyncio import tqdm


def bar_class(virtual_s: Callable[[], float]) -> type[Any]:
    """A progress bar that tells ``virtual_s()`` at each step, where a person looks on.

    Not in a log: there, the bar is vLLM's own. Nothing but the end of a request moves it.
    """
    if not sys.stderr.isatty():
        return tqdm

    class VirtualBar(tqdm):
        def update(self, n: float | None = 1) -> bool | None:
            self.set_postfix_str(told(virtual_s(), self._time() - self.start_t), refresh=False)
            return super().update(n)

    return VirtualBar


def told(virtual_s: float, wall_s: float) -> str:
    """How far the virtual clock is, and how much faster than the real one it went."""
    rate = f", {virtual_s / wall_s:.1f} virtual s per s" if wall_s > 0 else ""
    return f"{virtual_s:.1f} virtual s{rate}"
