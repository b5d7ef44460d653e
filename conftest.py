"""Order of the whole suite: what fails in seconds runs before what takes minutes."""

from __future__ import annotations

import pytest

SLOW = ("browser", "e2e")
"""Marks from fast to slow; tests without any come first."""


def _rank(item: pytest.Item) -> int:
    return max(
        (rank for rank, mark in enumerate(SLOW, 1) if item.get_closest_marker(mark)), default=0
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by mark; the sort is stable, so files and fixtures stay together."""
    items.sort(key=_rank)
