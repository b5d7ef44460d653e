"""The examples in docs/profiles.md are profiles, and every key of a profile is in it."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path

from sendnn_bench.profile import OPTIONAL, PARTS, TOP, parse

PAGE = (Path(__file__).parents[2] / "docs" / "profiles.md").read_text(encoding="utf-8")


def test_examples_are_profiles() -> None:
    examples = [parse(tomllib.loads(text)) for text in re.findall(r"```toml\n(.*?)```", PAGE, re.S)]
    assert [example.kind for example in examples] == ["linear", "table"]
    # an example that was not measured says so
    assert all("not measured" in example.source for example in examples)


def test_every_key_is_on_the_page() -> None:
    sections = [item for parts in (*PARTS.values(), OPTIONAL) for item in parts.items()]
    names = {f"[{name}]" for name, _ in sections}
    keys = {field.name for _, cls in sections for field in fields(cls)}
    missing = [key for key in sorted(keys | set(TOP) | names) if key not in PAGE]
    assert missing == []
