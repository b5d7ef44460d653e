"""Replace names in vLLM's modules for the time of one run, and put them back."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sendnn_bench.errors import BenchError

_ABSENT = object()


@dataclass(frozen=True)
class Hook:
    """``value`` takes the place of ``module.name``.

    ``shadows_builtin``: the name is a builtin's, which the module itself does not have.
    """

    module: str
    name: str
    value: Any
    shadows_builtin: bool = False


@contextmanager
def applied(hooks: Sequence[Hook]) -> Iterator[None]:
    """All hooks are in place within the block.

    Raises:
        BenchError: this version of vLLM has no such name; nothing has been replaced.
    """
    modules = [importlib.import_module(hook.module) for hook in hooks]
    saved = [
        vars(module).get(hook.name, _ABSENT) for module, hook in zip(modules, hooks, strict=True)
    ]
    for hook, before in zip(hooks, saved, strict=True):
        if before is _ABSENT and not hook.shadows_builtin:
            raise BenchError(
                f"{hook.module} has no {hook.name!r} in the vLLM that is installed; sendnn-bench "
                "supports vLLM 0.28 and the versions its pyproject.toml names."
            )
    try:
        for module, hook in zip(modules, hooks, strict=True):
            setattr(module, hook.name, hook.value)
        yield
    finally:
        for module, hook, before in zip(modules, hooks, saved, strict=True):
            if before is _ABSENT:
                delattr(module, hook.name)
            else:
                setattr(module, hook.name, before)


@contextmanager
def replaced_items(mapping: MutableMapping[str, Any], items: Mapping[str, Any]) -> Iterator[None]:
    """Items of a mapping are replaced within the block."""
    before = dict(mapping)
    mapping.update(items)
    try:
        yield
    finally:
        mapping.clear()
        mapping.update(before)
