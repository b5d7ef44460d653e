"""What a sweep is to do: told by a TOML file, by the command line, or by both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sendnn_bench import own_server, toml_file
from sendnn_bench.command_words import groups
from sendnn_bench.errors import UsageError
from sendnn_bench.rerun import merge
from sendnn_bench.sweep.grid import (
    TAKEN,
    Axis,
    Point,
    Side,
    axis_of,
    clean,
    flag_words,
    parse_axis,
    points,
)
from sendnn_bench.sweep.grid import text_of as value_text
from sendnn_bench.sweep.slo import Slo, parse_slo

FILE_KEYS = ("model", "server", "load", "vary-server", "vary", "goodput")


@dataclass(frozen=True)
class Parts:
    """A sweep as one source tells it."""

    server: tuple[str, ...] = ()
    client: tuple[str, ...] = ()
    axes: tuple[Axis, ...] = ()
    slo: Slo = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """A sweep, checked. ``slo`` are limits in ms by metric; empty for none."""

    model: str
    axes: tuple[Axis, ...]
    points: tuple[Point, ...]
    slo: Slo


def plan_of(parts: Parts, over: Parts) -> Plan:
    """One plan of a file and of the command line, whose flags win.

    Raises:
        UsageError: what they ask for cannot be done.
    """
    server = merge(parts.server, over.server)
    model, client = own_server.with_model(merge(parts.client, over.client))
    for name, _ in groups(client):
        if clean(name) in TAKEN["load"] - {"model"}:
            raise UsageError(f"`sendnn-bench sweep` sets {name} itself; leave it out.")
    own_server.refuse(client, own_server.SAVED_RUN_FLAGS, "cannot be swept: it is one saved run.")
    axes = (*parts.axes, *over.axes)
    return Plan(model, axes, tuple(points(axes, server, client)), over.slo or parts.slo)


def read_file(path: Path) -> Parts:
    """A sweep's file.

    Raises:
        UsageError: not there, no TOML, or a key or value that is not allowed.
    """
    return toml_file.read(path, parts_of)


def parts_of(data: Mapping[str, Any]) -> Parts:
    """What a sweep's file holds.

    Raises:
        UsageError: a key or value that is not allowed.
    """
    unknown = [key for key in data if key not in FILE_KEYS]
    if unknown:
        raise UsageError(f"unknown key {unknown[0]!r}; known are {', '.join(FILE_KEYS)}.")
    client = _fixed("load", data.get("load", {}))
    if "model" in data:
        client = ["--model", value_text("model", data["model"]), *client]
    words = own_server.check_server(_fixed("server", data.get("server", {})))
    goodput = _table("goodput", data.get("goodput", {}))
    return Parts(
        server=words,
        client=tuple(client),
        axes=(
            *_axes("server", "vary-server", data.get("vary-server", [])),
            *_axes("load", "vary", data.get("vary", [])),
        ),
        slo=parse_slo([f"{name}:{limit}" for name, limit in goodput.items()]),
    )


def _fixed(side: Side, table: Any) -> list[str]:
    words: list[str] = []
    for key, value in _table(side, table).items():
        name = clean(key)
        if isinstance(value, list):
            words += [f"--{name}", *(value_text(name, item) for item in value)]
        else:
            words += flag_words(side, (name, value_text(name, value)))
    return words


def _axes(side: Side, key: str, tables: Any) -> list[Axis]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise UsageError(f"{key} has to be written as [[{key}]], once for each that varies.")
    for table in tables:
        for name, values in table.items():
            if not isinstance(values, list):
                raise UsageError(f"[[{key}]] {name} = {values!r} has to be a list of values.")
    return [axis_of(side, table) for table in tables]


def _table(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{name} has to be a table: [{name}].")
    return value


def command_line_parts(
    words: own_server.Words,
    vary: Sequence[Sequence[str]],
    vary_server: Sequence[Sequence[str]],
    goodput: Sequence[str],
) -> Parts:
    """What the command line asks for.

    Raises:
        UsageError: a pair or an objective that is none.
    """
    return Parts(
        server=words.server,
        client=words.client,
        axes=(
            *(parse_axis("server", pairs) for pairs in vary_server),
            *(parse_axis("load", pairs) for pairs in vary),
        ),
        slo=parse_slo(goodput),
    )
