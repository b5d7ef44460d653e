"""docs/reliability.md is made from the tests of faults and from what became of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import make_reliability as reliability
from scripts.make_reliability import Fault

pytest_plugins = ["pytester"]


def test_the_page_is_current() -> None:
    assert reliability.PAGE.read_text() == reliability.current(), (
        "run `python -m scripts.make_reliability`"
    )


def test_every_noted_result_is_of_a_declared_test() -> None:
    tests = {fault.test for fault in reliability.declared()}
    assert len(tests) > 30
    assert json.loads(reliability.RESULTS.read_text()).keys() <= tests


def test_only_a_test_that_passed_is_shown_as_passed() -> None:
    text = "<!-- faults: files -->\nold\n<!-- end of faults -->\nmore"
    faults = [Fault(f"a.py::{name}", "files", name, "x", 5) for name in ("good", "bad", "new")]
    page = reliability.page(text, faults, {"a.py::good": "passed", "a.py::bad": "failed"})
    assert page.splitlines()[3:7] == [
        "| good | x | 5 | `a.py::good` | passed |",
        "| bad | x | 5 | `a.py::bad` | **failed** |",
        "| new | x | 5 | `a.py::new` | not run |",
        "<!-- end of faults -->",
    ]


def test_a_section_without_a_place_is_an_error() -> None:
    with pytest.raises(ValueError, match="nowhere"):
        reliability.page("", [Fault("a.py::x", "nowhere", "f", "w")], {})


TESTS = """
import pytest

@pytest.mark.fault(section="files", fault="f", what="w")
@pytest.mark.parametrize("good", [True, {second}])
def test_both(good):
    assert good

@pytest.mark.fault(section="files", fault="f", what="w")
def test_set_up(missing):
    pass

def test_of_no_fault():
    pass
"""


@pytest.mark.parametrize(("second", "outcome"), [(True, "passed"), (False, "failed")])
def test_results_are_noted_and_kept(pytester: pytest.Pytester, second: bool, outcome: str) -> None:
    pytester.makeconftest((reliability.TESTS / "conftest.py").read_text())
    pytester.makepyfile(test_a=TESTS.format(second=second))
    pytester.makeini("[pytest]\nmarkers = fault: x\n")
    noted = Path(pytester.path) / "noted.json"
    noted.write_text(json.dumps({"old.py::test": "passed"}))
    pytester.runpytest_subprocess("--fault-results", str(noted))
    assert json.loads(noted.read_text()) == {
        "old.py::test": "passed",
        "test_a.py::test_both": outcome,
        "test_a.py::test_set_up": "failed",
    }
