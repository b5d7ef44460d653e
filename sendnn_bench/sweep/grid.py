"""The grid of a sweep: what varies, and the points that come of it. Pure: no files, no servers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sendnn_bench.errors import UsageError

Side = Literal["server", "load"]
Setting = tuple[str, str]
"""A flag without its hyphens, and its value as text."""

OPTION = {"server": "--vary-server", "load": "--vary"}
SWITCH = {"true": True, "false": False}
"""Values of a flag that takes none: given, or not."""

TAKEN = {
    "server": frozenset({"host", "port", "uds", "model"}),
    "load": frozenset(
        {
            *("base-url", "host", "port", "model", "goodput"),
            *("result-dir", "result-filename", "save-result", "save-detailed", "append-result"),
        }
    ),
}
"""Flags that the sweep itself sets."""


@dataclass(frozen=True)
class Axis:
    """What varies together: ``rows`` holds one value for every name, step by step."""

    side: Side
    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def steps(self) -> list[tuple[Setting, ...]]:
        """The settings of every step."""
        return [tuple(zip(self.names, row, strict=True)) for row in self.rows]


@dataclass(frozen=True)
class Point:
    """One run of the sweep: what varies, and both command lines in full.

    ``server_flags`` are those of `sim-server` without the model, ``client_flags`` those of
    `serve` without the address and the place of the result.
    """

    server: tuple[Setting, ...]
    load: tuple[Setting, ...]
    server_flags: tuple[str, ...]
    client_flags: tuple[str, ...]

    @property
    def label(self) -> str:
        """Such as `max-num-seqs=16 request-rate=4`."""
        return point_label(self.server, self.load)


def label(settings: Sequence[Setting]) -> str:
    """Settings as one text."""
    return " ".join(f"{name}={value}" for name, value in settings)


def point_label(server: Sequence[Setting], load: Sequence[Setting]) -> str:
    """What varied at a point, as one text."""
    return label((*server, *load)) or "the only point"


def parse_axis(side: Side, pairs: Sequence[str]) -> Axis:
    """One `--vary` or `--vary-server`: NAME=V1,V2 pairs that go together.

    Raises:
        UsageError: a pair is none, or their lengths differ.
    """
    table: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, values = pair.partition("=")
        if not equals or not name or not all(values.split(",")):
            raise UsageError(
                f"{OPTION[side]} {pair!r} is not NAME=VALUE,VALUE such as request-rate=1,2,4."
            )
        if clean(name) in table:
            raise UsageError(f"{OPTION[side]} names {clean(name)} twice.")
        table[clean(name)] = values.split(",")
    return axis_of(side, table)


def axis_of(side: Side, table: Mapping[str, Sequence[Any]]) -> Axis:
    """An axis of names with their values.

    Raises:
        UsageError: no values, lengths that differ, or a flag that the sweep sets itself.
    """
    lengths = {len(values) for values in table.values()}
    if len(lengths) != 1 or 0 in lengths:
        told = ", ".join(f"{name} has {len(values)}" for name, values in table.items())
        raise UsageError(
            f"what varies together needs equally many values: {told or 'nothing is named'}. For "
            f"all combinations, give each a {OPTION[side]} of its own."
        )
    columns = {clean(name): [text_of(name, v) for v in values] for name, values in table.items()}
    for name in columns:
        if name in TAKEN[side]:
            raise UsageError(f"{OPTION[side]} cannot vary {name}: the sweep sets it.")
    return Axis(side, tuple(columns), tuple(zip(*columns.values(), strict=True)))


def clean(name: str) -> str:
    """A flag's name as it is shown: `--max_num_seqs` is `max-num-seqs`."""
    return name.lstrip("-").replace("_", "-")


def text_of(name: str, value: Any) -> str:
    """A value as a command line has it.

    Raises:
        UsageError: a list or table where one value belongs.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise UsageError(f"{name} has the value {value!r}; a text, a number, true or false is allowed.")


def flag_words(side: Side, setting: Setting) -> list[str]:
    """One setting as words of a command line.

    `false` leaves a flag of the client out; the server's have a `--no-` form.
    """
    name, value = setting
    if value in SWITCH:
        if SWITCH[value]:
            return [f"--{name}"]
        return [f"--no-{name}"] if side == "server" else []
    return [f"--{name}={value}"] if value.startswith("-") else [f"--{name}", value]


def points(
    axes: Sequence[Axis], server_flags: Sequence[str], client_flags: Sequence[str]
) -> list[Point]:
    """All combinations, the server's settings outermost: each is started once.

    Raises:
        UsageError: a flag varies twice, or is fixed as well.
    """
    _check_names(axes, server_flags, client_flags)
    by_side: dict[Side, list[tuple[Setting, ...]]] = {
        side: [
            tuple(itertools.chain.from_iterable(combination))
            for combination in itertools.product(*(a.steps() for a in axes if a.side == side))
        ]
        for side in ("server", "load")
    }
    return [
        Point(
            server=server,
            load=load,
            server_flags=(*server_flags, *_words("server", server)),
            client_flags=(*client_flags, *_words("load", load)),
        )
        for server in dict.fromkeys(by_side["server"])
        for load in dict.fromkeys(by_side["load"])
    ]


def _words(side: Side, settings: Sequence[Setting]) -> list[str]:
    return [word for setting in settings for word in flag_words(side, setting)]


def _check_names(
    axes: Sequence[Axis], server_flags: Sequence[str], client_flags: Sequence[str]
) -> None:
    fixed = {
        "server": {clean(word.partition("=")[0]) for word in server_flags if word[:2] == "--"},
        "load": {clean(word.partition("=")[0]) for word in client_flags if word[:2] == "--"},
    }
    seen: set[tuple[Side, str]] = set()
    for axis in axes:
        for name in axis.names:
            if (axis.side, name) in seen:
                raise UsageError(f"{OPTION[axis.side]} names {name} twice.")
            if name in fixed[axis.side]:
                raise UsageError(f"{name} varies, and is given as --{name} too. Leave one out.")
            seen.add((axis.side, name))
