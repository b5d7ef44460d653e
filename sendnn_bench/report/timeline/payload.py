"""The page's data: whole numbers in columns of bytes, compressed, as text that HTML can carry.

Layout before compression: length of the JSON head (4 bytes, little endian), the head in UTF-8,
then the columns one after another. A column of ``count`` numbers of ``width`` bytes is stored as
``width`` planes: all lowest bytes, then all second bytes, and so on. Neighbours in a plane are
alike, so that they compress well. The head's ``columns`` names them in order.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.int64]


def column(values: Sequence[int]) -> Column:
    """A column of numbers.

    Raises:
        ValueError: a number is negative: planes hold no sign.
        OverflowError: a number needs more than 63 bits.
    """
    array = np.asarray(values, dtype=np.int64)
    if array.size and int(array.min()) < 0:
        raise ValueError(f"a number to draw is negative: {int(array.min())}")
    return array


def encode(head: Mapping[str, Any], columns: Mapping[str, Column]) -> str:
    """Head and columns as base64 text of a zlib stream."""
    widths = {name: _width(values) for name, values in columns.items()}
    described = [
        {"name": name, "count": len(values), "width": widths[name]}
        for name, values in columns.items()
    ]
    text = json.dumps({**head, "columns": described}, separators=(",", ":")).encode()
    body = b"".join(_planes(values, widths[name]) for name, values in columns.items())
    return compress(len(text).to_bytes(4, "little") + text + body)


def compress(data: bytes) -> str:
    """Base64 text of a zlib stream; base64 cannot end a script element."""
    return base64.b64encode(zlib.compress(data, level=6)).decode("ascii")


def _width(values: Column) -> int:
    """Bytes that the largest number needs."""
    largest = int(values.max()) if len(values) else 0
    return max(1, (largest.bit_length() + 7) // 8)


def _planes(values: Column, width: int) -> bytes:
    raw = np.ascontiguousarray(values, dtype="<i8").view(np.uint8).reshape(-1, 8)
    return np.ascontiguousarray(raw[:, :width].T).tobytes()
