"""Cost profiles: what the steps of one deployment cost, as a strict TOML file.

`load` reads and checks a file, `dump` writes one that `load` gives back unchanged. The format is
described in docs/profiles.md. Standard library only: the simulated server reads profiles too.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from sendnn_bench import toml_file
from sendnn_bench.errors import UsageError
from sendnn_bench.profile_spec import (
    KINDS,
    ConstantCosts,
    DecodeLine,
    DecodeTable,
    Domain,
    Frontend,
    Host,
    Noise,
    Parser,
    PrefillLine,
    PrefillTable,
    Profile,
    number,
    whole,
)

__all__ = ["VERSION", "Profile", "dump", "load", "parse"]

VERSION = 1
"""Raised when a key changes its meaning."""

OPTIONAL = {"host": Host, "frontend": Frontend, "noise": Noise, "domain": Domain}
"""Sections that a profile may leave out."""

PARTS: dict[str, dict[str, type[Any]]] = {
    "constant": {"constant": ConstantCosts},
    "linear": {"prefill": PrefillLine, "decode": DecodeLine},
    "table": {"prefill": PrefillTable, "decode": DecodeTable},
}
"""Sections that hold the costs, by kind."""

TOP = ("version", "name", "source", "kind", "padded_chunk_tokens")


def load(path: Path) -> Profile:
    """Read a profile.

    Raises:
        UsageError: not there, not TOML, a key unknown or missing, a value that cannot be right.
    """
    return toml_file.read(path, parse, "cost profile")


def parse(data: Mapping[str, Any]) -> Profile:
    """Check a profile that is already read from TOML.

    Raises:
        UsageError: as `load`.
    """
    if data.get("version") != VERSION:
        raise UsageError(
            f"version = {data.get('version')!r} is not understood; this release reads {VERSION}."
        )
    kind = data.get("kind")
    if kind not in PARTS:
        raise UsageError(f"kind = {kind!r} is not one of {', '.join(PARTS)}.")
    parts: dict[str, type[Any]] = PARTS[kind]
    _refuse_unknown(data, [*TOP, *parts, *OPTIONAL], "")
    sections = {name: _section(cls, data.get(name), name) for name, cls in parts.items()}
    costs = sections["constant"] if kind == "constant" else KINDS[kind](**sections)
    optional = {
        name: _section(cls, data[name], name) for name, cls in OPTIONAL.items() if name in data
    }
    padded = data.get("padded_chunk_tokens")
    if padded is not None and (_value(whole, padded, "padded_chunk_tokens") == 0):
        raise UsageError("padded_chunk_tokens = 0 is not allowed; leave it out for no padding.")
    return Profile(
        name=_text(data, "name"),
        source=_text(data, "source"),
        costs=costs,
        padded_chunk_tokens=padded,
        **optional,
    )


def _section(cls: type[Any], data: Any, name: str) -> Any:
    if not isinstance(data, dict):
        raise UsageError(f"section [{name}] is missing.")
    known = [field.name for field in fields(cls)]
    _refuse_unknown(data, known, f"[{name}] ")
    parsers = getattr(cls, "PARSERS", {})
    values = {
        key: _value(parsers.get(key, number), value, f"[{name}] {key}")
        for key, value in data.items()
    }
    missing = [f.name for f in fields(cls) if f.default is MISSING and f.name not in values]
    if missing:
        raise UsageError(f"section [{name}] lacks {' and '.join(missing)}.")
    section = cls(**values)
    if isinstance(section, (PrefillTable, DecodeTable)):
        _check_shape(section, name)
    return section


def _check_shape(table: PrefillTable | DecodeTable, name: str) -> None:
    rows, columns = (key for key in table.PARSERS if key != "step_ms")
    expected = (len(getattr(table, rows)), len(getattr(table, columns)))
    if len(table.step_ms) != expected[0] or any(len(row) != expected[1] for row in table.step_ms):
        raise UsageError(
            f"[{name}] step_ms needs {expected[0]} rows (one for each of {rows}) of "
            f"{expected[1]} numbers (one for each of {columns})."
        )


def _value(parser: Parser, value: Any, where: str) -> Any:
    try:
        return parser(value)
    except ValueError as error:
        raise UsageError(f"{where} = {value!r} is not allowed; it takes {error}.") from error


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{key} = {value!r} is not allowed; it takes a text.")
    return value


def _refuse_unknown(data: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    for key in data:
        if key not in known:
            close = difflib.get_close_matches(key, known, 1)
            hint = f" Did you mean {close[0]}?" if close else f" Known: {', '.join(known)}."
            raise UsageError(f"{where}{key} is not a key of a cost profile.{hint}")


def dump(profile: Profile) -> str:
    """The profile as TOML text; `load` gives an equal one back."""
    head = {
        "version": VERSION,
        "name": profile.name,
        "source": profile.source,
        "kind": profile.kind,
        "padded_chunk_tokens": profile.padded_chunk_tokens,
    }
    costs = {name: getattr(profile.costs, name, profile.costs) for name in PARTS[profile.kind]}
    optional = {name: getattr(profile, name) for name in OPTIONAL}
    blocks = [_lines(head)]
    for name, section in (costs | optional).items():
        if section is not None:
            values = {field.name: getattr(section, field.name) for field in fields(section)}
            blocks.append(f"[{name}]\n{_lines(values)}")
    return "\n".join(blocks)


def _lines(values: Mapping[str, Any]) -> str:
    return "".join(
        f"{key} = {_toml(value)}\n" for key, value in values.items() if value not in (None, ())
    )


def _toml(value: Any) -> str:
    if isinstance(value, str):
        # A JSON string is a TOML string but for DEL, which TOML wants escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple):
        nested = bool(value) and isinstance(value[0], tuple)
        inner = (",\n    " if nested else ", ").join(_toml(item) for item in value)
        return f"[\n    {inner},\n]" if nested else f"[{inner}]"
    return repr(value)
