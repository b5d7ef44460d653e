"""The commands of README and docs: flags exist, and what needs no server runs."""

import re
from pathlib import Path

import pytest

from scripts.run_docs_commands import ROOT, Block, blocks, commands, complaints, main, pages, run

BLOCKS = [block for page in pages() for block in blocks(page)]
RUN = [block for block in BLOCKS if not block.why]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_commands_exist(block):
    assert complaints(block) == []


@pytest.mark.parametrize("block", RUN, ids=lambda block: block.name)
def test_commands_run(block):
    assert run(block) == ""


def test_every_block_is_found():
    """A comment that is no known mark, or a fence of another form, hides no block."""
    fences = sum(
        line.strip() in ("```sh", "```bash")
        for page in pages()
        for line in page.read_text().splitlines()
    )
    assert len(BLOCKS) == fences
    assert {block.why for block in BLOCKS} == {"", "needs server", "sets up", "takes long"}


def test_words_of_commands():
    text = "# first\nA=1 make a && make b  # last\nsendnn-bench serve \\\n  --seed 1 | cat\n"
    assert list(commands(text)) == [
        ["make", "a"],
        ["make", "b"],
        ["sendnn-bench", "serve", "--seed", "1"],
        ["cat"],
    ]


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("sendnn-bench serve --no-such-flag 1", "unknown flag --no-such-flag"),
        ("sendnn-bench serve --request-rate 1 --random_input_len 5 --from x.json", ""),
        ("sendnn-bench sim-server m --sim-prefil-ms 1", "unknown flag --sim-prefil-ms"),
        ("sendnn-bench sim-server m --sim-decode-ms 1 -tp 4 --max-model-len 9 --port 1", ""),
        ("sendnn-bench report a.json --percentile 50", "No such option"),
        ("sendnn-bench report", "Missing argument"),
        ("sendnn-bench explain", "no such command"),
        ("python -m benchmarks.fidelity --director x", "unknown flag --director"),
        ("python -m benchmarks.no_such", "no module benchmarks.no_such"),
        ("make tea", "no target 'tea'"),
        ("sendnn-bensh serve", "unknown program"),
    ],
)
def test_wrong_commands_are_found(command, complaint):
    found = complaints(Block("x.md:1", command, "needs server"))
    assert bool(found) == bool(complaint)
    assert all(complaint in text for text in found)


def test_a_command_that_fails_is_told(tmp_path: Path, capsys):
    page = tmp_path / "page.md"
    page.write_text("```sh\nsendnn-bench report no-such-file.toml\n```\n")
    assert main([page]) == 1
    captured = capsys.readouterr()
    assert captured.out == "page.md:1: wrong\n"
    assert "page.md:1: exit code 5" in captured.err
    assert "no-such-file.toml does not exist" in captured.err


def test_links_lead_somewhere():
    for page in pages():
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"
