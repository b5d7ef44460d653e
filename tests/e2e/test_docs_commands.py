"""The commands of README and docs that need a server, run as they stand there.

The shared server answers them. All other pages are run by hand, since they start servers of their
own or take long: `python -m scripts.run_docs_commands --start-servers`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.docs_blocks import NEEDS_SERVER, ROOT, pages
from scripts.run_docs_commands import Means, run_page
from tests.e2e.conftest import Server

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

RUN = ("docs/reports.md", "docs/timeline.md")
SHARED = [page for page in pages() if str(page.relative_to(ROOT)) in RUN]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", SHARED, ids=name_of)
def test_commands_run_against_the_shared_server(page: Path, spyre_server: Server):
    outcomes = list(run_page(page, Means(base_url=spyre_server.url)))
    assert [outcome.wrong for outcome in outcomes if outcome.wrong] == []
    unrun = [o.block.name for o in outcomes if o.block.mark == NEEDS_SERVER and not o.ran]
    assert unrun == []
