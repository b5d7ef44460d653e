"""A TOML file of the user's, read and checked; every error names the file."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from sendnn_bench.errors import UsageError

T = TypeVar("T")


def read(path: Path, parse: Callable[[Mapping[str, Any]], T], what: str = "") -> T:
    """What ``parse`` makes of the file; ``what`` says in errors which kind of file it is.

    Raises:
        UsageError: it is not there, it is no TOML, or ``parse`` raised one.
    """
    name = f"{what} {path}".lstrip()
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{name} is not TOML: {error}.") from error
    try:
        return parse(data)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error
