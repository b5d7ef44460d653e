"""Result files: load and check them, view them by request, save them so that nothing is lost."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sendnn_bench.errors import ResultError
from sendnn_bench.metrics import COLUMN_PREFIX, Record
from sendnn_bench.result_cells import VLLM_CELLS, read_cell, short

SCHEMA_VERSION = 1
"""Version of the ``sendnn`` block that we add to vLLM's result JSON."""

BLOCK_KEY = "sendnn"


@dataclass(frozen=True)
class RequestRow:
    """One request of a detailed result, vLLM's columns in seconds on the client's clock.

    ``record`` holds what the server measured, on the server's clock, or is None: the request
    failed or the server streams no metrics. Client and server times must never be subtracted
    from each other.
    """

    index: int
    start_s: float
    ttft_s: float
    itl_s: list[float]
    input_tokens: int
    output_tokens: int
    error: str
    record: Record | None

    @property
    def failed(self) -> bool:
        """Only a non-empty error tells a failed row; its times may be partly filled."""
        return bool(self.error)

    @property
    def e2el_s(self) -> float:
        """Arrival to last token, as vLLM's columns tell it."""
        return self.ttft_s + sum(self.itl_s)


@dataclass(frozen=True)
class Result:
    """A result JSON as loaded; ``data`` is untouched."""

    path: Path
    data: dict[str, Any]

    @property
    def block(self) -> dict[str, Any]:
        """The ``sendnn`` block (mode, cost model, versions, settings); empty for other tools."""
        block = self.data.get(BLOCK_KEY)
        return block if isinstance(block, dict) else {}

    @property
    def simulated(self) -> bool:
        """True where the server's clock was virtual."""
        return self.block.get("mode") == "virtual"

    @property
    def detailed(self) -> bool:
        """True where per-request columns are present (`--save-detailed`)."""
        return isinstance(self.data.get("start_times"), list)

    def rows(self) -> list[RequestRow]:
        """Per-request rows in vLLM's order.

        Raises:
            ResultError: the file has no per-request columns, columns of unequal length, or a cell
                of another type than its column's.
        """
        if not self.detailed:
            raise ResultError(
                f"{self.path} has no per-request data. Run the benchmark with --save-result "
                "--save-detailed."
            )
        count = len(self.data["start_times"])
        columns = {
            key: value
            for key, value in self.data.items()
            if key in VLLM_CELLS or (key.startswith(COLUMN_PREFIX) and isinstance(value, list))
        }
        for key, value in columns.items():
            if not isinstance(value, list) or len(value) != count:
                seen = f"{len(value)} rows" if isinstance(value, list) else type(value).__name__
                raise ResultError(
                    f"{self.path}: column {key!r} has {seen}, but start_times has {count} rows. "
                    "The file is damaged or was edited by hand."
                )
        return [self._row(index, columns) for index in range(count)]

    def _row(self, index: int, columns: dict[str, list[Any]]) -> RequestRow:
        cells = {key: self._cell(key, index, column[index]) for key, column in columns.items()}
        error = cells.get("errors") or ""
        return RequestRow(
            index=index,
            start_s=cells.get("start_times") or 0.0,
            ttft_s=cells.get("ttfts") or 0.0,
            itl_s=cells.get("itls") or [],
            input_tokens=int(cells.get("input_lens") or 0),
            output_tokens=int(cells.get("output_lens") or 0),
            error=error,
            # Upstream's client fills the cells of a failed request with zeros.
            record=None if error else _record(cells),
        )

    def _cell(self, key: str, index: int, value: Any) -> Any:
        try:
            return read_cell(key, value)
        except TypeError as error:
            raise ResultError(
                f"{self.path}: a per-request column is damaged: row {index} of {key!r} is "
                f"{short(value)}, not {error}. Was the file edited by hand?"
            ) from error


def _record(cells: dict[str, Any]) -> Record | None:
    """What the server measured, or None where no cell tells anything."""
    found = {
        key.removeprefix(COLUMN_PREFIX): value
        for key, value in cells.items()
        if key.startswith(COLUMN_PREFIX) and value is not None
    }
    return found if any(value != [] for value in found.values()) else None


def load(path: Path) -> Result:
    """Read a result JSON.

    Raises:
        ResultError: not there, a directory, not JSON (with the place), or not an object.
    """
    if path.is_dir():
        raise ResultError(f"{path} is a directory; name the result JSON file inside it.")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ResultError(f"{path} does not exist.") from error
    except OSError as error:
        raise ResultError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ResultError(f"{path} is not a text file: {error.reason}.") from error
    except json.JSONDecodeError as error:
        raise ResultError(
            f"{path} is not complete JSON (line {error.lineno}, column {error.colno}: "
            f"{error.msg}). Was the run interrupted, or is it a .jsonl file?"
        ) from error
    if not isinstance(data, dict):
        raise ResultError(f"{path} holds a JSON {type(data).__name__}, not a result object.")
    return Result(path=path, data=data)


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    Raises:
        ResultError: the directory or file cannot be written, with the system's reason.
    """
    if path.exists() and not path.is_file():
        raise ResultError(f"{path} cannot be written: it is no regular file.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as out:
                out.write(text)
                out.flush()
                os.fsync(out.fileno())
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise ResultError(f"{path} cannot be written: {error.strerror}.") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
