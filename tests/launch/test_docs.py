"""The reference pages say what the code says."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("docs")
    script = ROOT / "scripts" / "make_docs.py"
    subprocess.run([sys.executable, str(script), str(directory)], check=True, timeout=60)
    return directory


@pytest.mark.parametrize("name", ["cli.md", "settings.md", "exit-codes.md", "hooks.md"])
def test_a_page_is_current(made, name):
    committed = (ROOT / "docs" / name).read_text()
    assert (made / name).read_text() == committed, f"docs/{name} is old: run `make docs`"
