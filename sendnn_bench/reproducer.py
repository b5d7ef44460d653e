"""A reproducer: the file that a run leaves behind when the simulated engine failed under it.

It holds what was asked (the command, every request as it was sent, when it arrived), of whom (the
server as it described itself), and the failure with the engine's state. `serve --replay` runs it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from sendnn_bench.errors import ResultError
from sendnn_bench.protocol import EngineFailure, ServerInfo
from sendnn_bench.results import load as load_json
from sendnn_bench.results import write_atomically

SCHEMA_VERSION = 1
SCHEMA_KEY = "sendnn_reproducer"
SUFFIX = ".reproducer.json"


@dataclass(frozen=True)
class SentRequest:
    """A request as it was sent: ``path`` below the server's address, ``body`` its JSON.

    ``arrival_ns``: virtual time at which the client submitted it; ``seq`` counts from 0.
    """

    seq: int
    arrival_ns: int
    path: str
    body: Mapping[str, Any]


@dataclass(frozen=True)
class Reproducer:
    """The file's content. ``start`` is `cold` or `warm`."""

    command: list[str]
    start: str
    server: ServerInfo
    failure: EngineFailure
    requests: list[SentRequest]

    def write(self, path: Path) -> None:
        """Write the file in one step.

        Raises:
            ResultError: it cannot be written.
        """
        write_atomically(path, json.dumps({SCHEMA_KEY: SCHEMA_VERSION, **asdict(self)}, indent=1))


def load(path: Path) -> Reproducer:
    """Read a reproducer; nothing in it may be missing, unknown or of another type.

    Raises:
        ResultError: it cannot be read, or is no reproducer of this version; says where.
    """
    data = load_json(path).data
    version = data.pop(SCHEMA_KEY, None)
    if version != SCHEMA_VERSION:
        seen = "no reproducer" if version is None else f"a reproducer of version {version!r}"
        raise ResultError(
            f"{path} is {seen}; --replay reads version {SCHEMA_VERSION} of the files that "
            f"`sendnn-bench serve` writes as *{SUFFIX} when the simulated engine fails."
        )
    try:
        whole = _checked(data, Reproducer, "the file")
        return Reproducer(
            command=_list(whole["command"], str, "command"),
            start=whole["start"],
            server=ServerInfo(**_checked(whole["server"], ServerInfo, "server")),
            failure=EngineFailure(**_checked(whole["failure"], EngineFailure, "failure")),
            requests=[
                SentRequest(**_checked(item, SentRequest, f"requests[{index}]"))
                for index, item in enumerate(whole["requests"])
            ],
        )
    except TypeError as error:
        raise ResultError(f"{path}: {error}. Was the file edited by hand?") from error


_KINDS: dict[str, type | tuple[type, ...]] = {
    "str": str,
    "int": int,
    "ClockMode": str,
    "ServerInfo": dict,
    "EngineFailure": dict,
}
"""JSON types of annotations that are no dict[...], Mapping[...] or list[...]."""


def _checked(data: Any, kind: type, where: str) -> dict[str, Any]:
    """An object with exactly the fields of a dataclass, each of its type.

    Raises:
        TypeError: says what is wrong where.
    """
    if not isinstance(data, dict):
        raise TypeError(f"{where} is {type(data).__name__}, not an object")
    known = {item.name: str(item.type) for item in fields(kind)}
    for name in known.keys() ^ data.keys():
        problem = "is missing" if name in known else "is unknown"
        raise TypeError(f"{name!r} in {where} {problem}")
    for name, annotation in known.items():
        outer = annotation.partition("[")[0]
        wanted = {"dict": dict, "Mapping": dict, "list": list}.get(outer) or _KINDS[outer]
        if not isinstance(data[name], wanted) or isinstance(data[name], bool):
            raise TypeError(f"{name!r} in {where} is {type(data[name]).__name__}, not {outer}")
    return data


def _list(items: list[Any], kind: type, where: str) -> list[Any]:
    for item in items:
        if not isinstance(item, kind):
            raise TypeError(f"{where} holds a {type(item).__name__}, not only {kind.__name__}")
    return items
