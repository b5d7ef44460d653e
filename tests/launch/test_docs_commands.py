"""The commands of README and docs: flags exist, and what needs no server runs."""

import re
from pathlib import Path

import pytest

from scripts.docs_blocks import (
    MARKS,
    NEEDS_SERVER,
    ROOT,
    STARTS_SERVER,
    Block,
    blocks,
    commands,
    complaints,
    pages,
)
from scripts.run_docs_commands import Means, main, run_page, sample_names, shell

BLOCKS = [block for page in pages() for block in blocks(page)]
RUN = [page for page in pages() if any(not block.mark for block in blocks(page))]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_commands_exist(block):
    assert complaints(block) == []


@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_run(page):
    assert [outcome.wrong for outcome in run_page(page, Means()) if outcome.wrong] == []


def test_every_block_is_found():
    """A comment that is no known mark, or a fence of another form, hides no block."""
    fences = sum(
        line.strip() in ("```sh", "```bash")
        for page in pages()
        for line in page.read_text().splitlines()
    )
    assert len(BLOCKS) == fences
    assert {block.mark for block in BLOCKS} == {"", *MARKS}


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
    page.write_text("```sh\nsendnn-bench report tests/no-such-file.json\n```\n")
    assert main([str(page)]) == 1
    captured = capsys.readouterr()
    assert captured.out == "page.md:1: wrong\n"
    assert "page.md:1: exit code 5" in captured.err
    assert "no-such-file.json does not exist" in captured.err


def test_marks_say_what_is_run():
    marked = {mark: Block("x.md:1", "cat x", mark) for mark in ("", *MARKS)}
    for means, run in (
        (Means(), {""}),
        (Means(base_url="http://127.0.0.1:1"), {"", NEEDS_SERVER}),
        (Means(start_servers=True), {"", STARTS_SERVER}),
        (Means(long=True), {"", "takes long"}),
    ):
        assert {mark for mark, block in marked.items() if means.allow(block)} == run


def test_a_server_s_port_takes_the_place_of_8000():
    text = "curl http://localhost:8000/health; vllm bench serve --port 8000\nsendnn-bench serve\n"
    script = shell(Block("x.md:1", text, NEEDS_SERVER), "http://127.0.0.1:4711")[-1]
    assert "curl http://127.0.0.1:4711/health; vllm bench serve --port 4711" in script
    assert '"$@" --base-url "http://127.0.0.1:4711"' in script


def test_samples_are_for_what_is_read():
    text = (
        "sendnn-bench serve --from a.json --result-filename b.json\n"
        "sendnn-bench calibrate tests/c.json -o d.toml\n"
        "sendnn-bench sim-server m --sim-profile e.toml\n"
    )
    assert sample_names(text) == {"a.json", "e.toml"}


def test_blocks_of_a_page_share_their_files(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\nsendnn-bench compare a.json b.json -o c.md\n```\n\n```sh\ncat c.md\n```\n"
    )
    outcomes = list(run_page(page, Means()))
    assert [(outcome.ran, outcome.wrong) for outcome in outcomes] == [(True, []), (True, [])]


def test_links_lead_somewhere():
    for page in pages():
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"
