"""A command line, taken apart."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

Group = tuple[str, list[str]]
"""A flag's name with hyphens, and its words as they were given."""

ADDRESS_FLAGS = frozenset({"--base-url", "--host", "--port"})
"""Where a server is."""

RESULT_FLAGS = frozenset({"--result-dir", "--result-filename", "--append-result"})
"""Where a run saves its result."""


def without(words: Sequence[str], flags: Collection[str]) -> list[str]:
    """The words but for these flags and their values."""
    return [word for name, group in groups(words) if name not in flags for word in group]


def groups(words: Sequence[str]) -> Iterator[Group]:
    """Every flag with its values."""
    name, group = "", list[str]()
    for word in words:
        if _is_flag(word):
            if group:
                yield name, group
            name, group = word.partition("=")[0].replace("_", "-"), []
        group.append(word)
    if group:
        yield name, group


def _is_flag(word: str) -> bool:
    if not word.startswith("-"):
        return False
    try:
        float(word)
    except ValueError:
        return True
    return False
