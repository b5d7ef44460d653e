"""The reference pages say what the code says."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GAP = "…"


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


def strings(node: ast.AST) -> str:
    """The text of a string in the code, with one sign for what is put in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else GAP for part in node.values)
        return "".join(map(str, parts))
    return ""


def test_messages_of_the_troubleshooting_page_are_those_of_the_code():
    said = "\n".join(
        strings(node)
        for room in ("sendnn_bench", "server_plugin")
        for path in sorted((ROOT / room).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
    )
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    messages = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert len(messages) > 30
    unknown = [message for message in messages if message.strip(f"{GAP} ") not in said]
    assert unknown == []
