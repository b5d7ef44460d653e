"""Write the tables of docs/reliability.md: from the tests' declarations and what became of them.

    python -m scripts.make_reliability

Each test marked `fault` is a row. Its result is the one noted in docs/reliability.json, which
`pytest -m fault --fault-results docs/reliability.json` writes; a test without one has not run.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.make_docs import table

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
PAGE = ROOT / "docs" / "reliability.md"
RESULTS = ROOT / "docs" / "reliability.json"

MARKER = "pytest.mark.fault"
BLOCK = re.compile(r"(<!-- faults: (\w+) -->\n).*?(<!-- end of faults -->)", re.DOTALL)
SHOWN = {"passed": "passed", "failed": "**failed**"}


@dataclass(frozen=True)
class Fault:
    """A row: what goes wrong, what happens then, the test that shows it."""

    test: str
    section: str
    fault: str
    what: str
    exit_code: int | None = None


def declared(folder: Path = TESTS) -> list[Fault]:
    """Every test that is marked as one of a fault, by file and line.

    Raises:
        TypeError, ValueError: a mark has other arguments than literals for the fields of `Fault`.
    """
    found = []
    for path in sorted(folder.rglob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                test = f"{path.relative_to(folder)}::{node.name}"
                found += [Fault(test, **values) for values in marks(node)]
    return found


def marks(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[dict[str, object]]:
    """The arguments of the mark, where a test has it."""
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == MARKER:
            yield {str(word.arg): ast.literal_eval(word.value) for word in decorator.keywords}


def section_table(faults: Sequence[Fault], results: Mapping[str, str]) -> str:
    """One section's rows; the column of exit codes only where a row has one."""
    codes = any(fault.exit_code is not None for fault in faults)
    head = ("fault", "what happens", *(["exit code"] if codes else []), "test", "result")
    rows = [
        (
            fault.fault,
            fault.what,
            *(["" if fault.exit_code is None else str(fault.exit_code)] if codes else []),
            f"`{fault.test}`",
            SHOWN.get(results.get(fault.test, ""), "not run"),
        )
        for fault in faults
    ]
    return table(head, rows)


def page(text: str, faults: Sequence[Fault], results: Mapping[str, str]) -> str:
    """The page with the tables in their places.

    Raises:
        ValueError: a section is named by a test and missing on the page, or the other way round.
    """
    sections = [match[2] for match in BLOCK.finditer(text)]
    named = {fault.section for fault in faults}
    if named != set(sections):
        raise ValueError(f"sections of the page {sections}, of the tests {sorted(named)}")

    def fill(match: re.Match[str]) -> str:
        rows = [fault for fault in faults if fault.section == match[2]]
        return match[1] + section_table(rows, results) + match[3]

    return BLOCK.sub(fill, text)


def current() -> str:
    """The page as it should be."""
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    return page(PAGE.read_text(encoding="utf-8"), declared(), results)


if __name__ == "__main__":
    PAGE.write_text(current(), encoding="utf-8")
