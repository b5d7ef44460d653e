"""Shared by all tests: hypothesis' profile, and what became of the tests of a fault."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Same examples in every run, and no complaint about a slow machine: a test tells of the code.
settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")

PASSED, FAILED = "passed", "failed"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fault-results",
        type=Path,
        help="JSON file in which to note how the tests marked `fault` ended; those of tests that "
        "do not run now are kept. scripts/make_reliability.py reads it.",
    )


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--fault-results")
    if path is not None:
        config.pluginmanager.register(FaultResults(path), "fault-results")


class FaultResults:
    """Notes the outcome of every test of a fault; one with parameters passes if all of them do."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names: dict[str, str] = {}
        self._outcomes: dict[str, str] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            if item.get_closest_marker("fault"):
                name = item.nodeid.partition("[")[0].removeprefix("tests/")
                self._names[item.nodeid] = name

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = self._names.get(report.nodeid)
        if name is None:
            return
        if not report.passed:
            self._outcomes[name] = FAILED
        elif report.when == "call":
            self._outcomes.setdefault(name, PASSED)

    def pytest_sessionfinish(self) -> None:
        known = json.loads(self._path.read_text()) if self._path.exists() else {}
        merged = dict(sorted((known | self._outcomes).items()))
        self._path.write_text(json.dumps(merged, indent=1) + "\n")
