"""The grid of a sweep, from words and from a file."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sendnn_bench.errors import UsageError
from sendnn_bench.own_server import Words
from sendnn_bench.sweep.grid import axis_of, flag_words, parse_axis, points
from sendnn_bench.sweep.plan import Parts, command_line_parts, parts_of, plan_of, read_file
from sendnn_bench.sweep.slo import parse_slo

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("sweep-*.toml"))


def test_all_combinations_with_each_server_in_one_piece() -> None:
    axes = [
        parse_axis("load", ["request-rate=1,2", "num-prompts=30,60"]),
        parse_axis("load", ["seed=0,1"]),
        parse_axis("server", ["max-num-seqs=16,32"]),
    ]
    found = points(axes, ["--max-model-len", "4096"], ["--model", "m"])
    assert [point.label for point in found[:4]] == [
        "max-num-seqs=16 request-rate=1 num-prompts=30 seed=0",
        "max-num-seqs=16 request-rate=1 num-prompts=30 seed=1",
        "max-num-seqs=16 request-rate=2 num-prompts=60 seed=0",
        "max-num-seqs=16 request-rate=2 num-prompts=60 seed=1",
    ]
    servers = [flags for flags, _ in itertools.groupby(p.server_flags for p in found)]
    assert servers == [
        ("--max-model-len", "4096", "--max-num-seqs", "16"),
        ("--max-model-len", "4096", "--max-num-seqs", "32"),
    ]
    assert found[0].client_flags == (
        *("--model", "m", "--request-rate", "1", "--num-prompts", "30", "--seed", "0"),
    )


def test_nothing_varies_is_one_point() -> None:
    (point,) = points([], [], ["--model", "m"])
    assert point.label == "the only point"


@given(st.lists(st.integers(1, 4), max_size=3), st.lists(st.integers(1, 4), max_size=3))
def test_the_grid_is_a_product_without_repetition(loads: list[int], servers: list[int]) -> None:
    axes = [
        axis_of(side, {f"{side}-{index}": list(range(count))})
        for side, counts in (("load", loads), ("server", servers))
        for index, count in enumerate(counts)
    ]
    found = points(axes, [], [])
    size = 1
    for count in (*loads, *servers):
        size *= count
    assert len(found) == len(set(found)) == size


@pytest.mark.parametrize(
    ("side", "setting", "words"),
    [
        ("server", ("enable-prefix-caching", "true"), ["--enable-prefix-caching"]),
        ("server", ("enable-prefix-caching", "false"), ["--no-enable-prefix-caching"]),
        ("load", ("ignore-eos", "false"), []),
        ("load", ("temperature", "-1"), ["--temperature=-1"]),
        ("load", ("request-rate", "inf"), ["--request-rate", "inf"]),
    ],
)
def test_words_of_a_setting(side, setting, words) -> None:
    assert flag_words(side, setting) == words


@pytest.mark.parametrize(
    ("vary", "named"),
    [
        (["request-rate"], "is not NAME=VALUE"),
        (["request-rate="], "is not NAME=VALUE"),
        (["=1"], "is not NAME=VALUE"),
        (["request-rate=1,,2"], "is not NAME=VALUE"),
        (["a=1,2", "b=1"], "a has 2, b has 1"),
        (["a=1", "--a=2"], "names a twice"),
        (["result_dir=x"], "cannot vary result-dir"),
    ],
)
def test_axes_that_cannot_be(vary: list[str], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        parse_axis("load", vary)


@pytest.mark.parametrize(
    ("client", "vary", "named"),
    [
        (["--request-rate", "1"], [["request-rate=1,2"]], "given as --request-rate too"),
        ([], [["seed=1"], ["seed=2"]], "names seed twice"),
        (["--result-filename", "x"], [], "sets --result-filename itself"),
        (["--port", "1"], [], "sets --port itself"),
        (["--from", "r.json"], [], "--from cannot be swept"),
        (["--model"], [], "--model needs a name"),
    ],
)
def test_plans_that_cannot_be(client: list[str], vary: list[list[str]], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        plan_of(Parts(), command_line_parts(Words((), tuple(client)), vary, [], []))


def test_a_file_says_the_same_as_words() -> None:
    told = parts_of(
        {
            "model": "m",
            "server": {"max-model-len": 4096, "sim_runner": "lean"},
            "load": {"num-prompts": 20, "ignore-eos": True, "header": ["A=1", "B=2"]},
            "vary-server": [{"max-num-seqs": [16, 32]}],
            "vary": [{"request-rate": [1.5, "inf"], "seed": [0, 1]}],
            "goodput": {"ttft": 500, "tpot": 60.5},
        }
    )
    words = command_line_parts(
        Words(
            ("--max-model-len", "4096", "--sim-runner", "lean"),
            (
                *("--model", "m", "--num-prompts", "20", "--ignore-eos"),
                *("--header", "A=1", "B=2"),
            ),
        ),
        [["request-rate=1.5,inf", "seed=0,1"]],
        [["max-num-seqs=16,32"]],
        ["ttft:500", "tpot:60.5"],
    )
    assert told == words


def test_words_beat_the_file() -> None:
    file = Parts(client=("--model", "m", "--num-prompts", "200"), slo={"ttft": 1.0})
    over = Parts(client=("--num-prompts", "20"), slo={"tpot": 2.0})
    plan = plan_of(file, over)
    assert plan.points[0].client_flags == ("--model", "m", "--num-prompts", "20")
    assert plan.slo == {"tpot": 2.0}
    assert plan.model == "m"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("rate = 1", "unknown key 'rate'"),
        ("load = 3", "has to be a table"),
        ("[vary]\nseed = [1]", r"written as \[\[vary\]\]"),
        ("[[vary]]\nseed = 1", "has to be a list"),
        ("[[vary]]\nseed = []", "seed has 0"),
        ("[[vary]]", "nothing is named"),
        ("[load]\nx = {a = 1}", "a text, a number, true or false"),
        ("[goodput]\nitl = 5", "names are ttft, tpot, e2el"),
        ("[server]\nport = 1", "--port is no flag for this server"),
        ("[server]\nsim-decode-ms = -1", "--sim-decode-ms '-1' is not allowed"),
        ("[load", "is not TOML"),
    ],
)
def test_files_that_cannot_be(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=named) as error:
        read_file(path)
    assert str(path) in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_file(tmp_path / "no.toml")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_plans(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    plan = plan_of(read_file(path), Parts())
    assert len(plan.points) > 1
    assert plan.slo


@pytest.mark.parametrize("pair", ["itl:5", "ttft", "ttft:", "ttft:x", "ttft:0", "ttft:inf"])
def test_objectives_that_cannot_be(pair: str) -> None:
    with pytest.raises(UsageError, match="is not NAME:MILLISECONDS"):
        parse_slo([pair])
