"""Profile files: what is read, what is refused, and that a written file is read back equal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sendnn_bench.errors import UsageError
from sendnn_bench.profile import dump, load, parse
from sendnn_bench.profile_spec import (
    ConstantCosts,
    DecodeLine,
    DecodeTable,
    Domain,
    Frontend,
    Host,
    LinearCosts,
    Noise,
    PrefillLine,
    PrefillTable,
    Profile,
    TableCosts,
)

LINEAR = """\
version = 1
name = "four cards"
source = "worked out by hand"
kind = "linear"
padded_chunk_tokens = 512

[prefill]
p0_ms = 40
p1_ms_per_token = 0.1
p2_ms_per_token_per_context_token = 1e-6

[decode]
d0_ms = 20.5

[domain]
batch = [1, 8]
"""

numbers = st.floats(min_value=0, max_value=1e9, allow_nan=False)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
ranges = st.tuples(numbers, numbers).map(lambda pair: (min(pair), max(pair)))
knots = st.lists(numbers, min_size=1, max_size=4, unique=True).map(sorted).map(tuple)


@st.composite
def grids(draw: st.DrawFn) -> tuple[tuple[float, ...], tuple[float, ...], tuple]:
    rows, columns = draw(knots), draw(knots)
    row = st.tuples(*[numbers] * len(columns))
    return rows, columns, draw(st.tuples(*[row] * len(rows)))


costs = st.one_of(
    st.builds(ConstantCosts, numbers, numbers),
    st.builds(
        LinearCosts,
        st.builds(PrefillLine, numbers, numbers, numbers),
        st.builds(DecodeLine, numbers, numbers, numbers),
    ),
    st.builds(
        TableCosts,
        grids().map(lambda grid: PrefillTable(*grid)),
        grids().map(lambda grid: DecodeTable(*grid)),
    ),
)
ratios = st.lists(numbers, max_size=5).map(tuple)
profiles = st.builds(
    Profile,
    name=texts,
    source=texts,
    costs=costs,
    padded_chunk_tokens=st.none() | st.integers(1, 4096),
    host=st.none() | st.builds(Host, numbers, numbers),
    frontend=st.none() | st.builds(Frontend, numbers, numbers),
    noise=st.none() | st.builds(Noise, st.integers(0, 2**62), ratios, ratios),
    domain=st.none() | st.builds(Domain, *[st.none() | ranges] * 4),
)


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "profile.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_a_profile_by_hand(write) -> None:
    assert load(write(LINEAR)) == Profile(
        name="four cards",
        source="worked out by hand",
        costs=LinearCosts(PrefillLine(40.0, 0.1, 1e-6), DecodeLine(20.5)),
        padded_chunk_tokens=512,
        domain=Domain(batch=(1.0, 8.0)),
    )


@given(profiles)
def test_what_is_written_is_read_back_equal(tmp_path_factory, profile: Profile) -> None:
    path = tmp_path_factory.mktemp("p") / "profile.toml"
    path.write_text(dump(profile), encoding="utf-8", newline="")
    assert load(path) == profile


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("version = 1", "version = 2", "version = 2"),
        ('kind = "linear"', 'kind = "cubic"', "'cubic' is not one of constant, linear, table"),
        ("d0_ms = 20.5", "d0_ms = 20.5\nd3_ms = 1", "[decode] d3_ms is not a key"),
        ("p1_ms_per_token", "p1_ms_per_tokens", "Did you mean p1_ms_per_token?"),
        ("[domain]", "[host]\nh1_ms_per_request = 1\n[domain]", "section [host] lacks h0_ms"),
        ("[domain]", "[domains]", "domains is not a key"),
        ("[decode]\nd0_ms = 20.5\n", "", "section [decode] is missing"),
        ("d0_ms = 20.5", "d0_ms = -1", "[decode] d0_ms = -1 is not allowed"),
        ("d0_ms = 20.5", "d0_ms = nan", "[decode] d0_ms = nan is not allowed"),
        ("d0_ms = 20.5", "d0_ms = true", "[decode] d0_ms = True is not allowed"),
        ("batch = [1, 8]", "batch = [8, 1]", "it takes [lowest, highest]"),
        ('source = "worked out by hand"', 'source = ""', "source = '' is not allowed"),
        ("padded_chunk_tokens = 512", "padded_chunk_tokens = 0", "padded_chunk_tokens = 0"),
        ("padded_chunk_tokens = 512", "padded_chunk_tokens = 5.5", "a whole number"),
        ("version = 1", "version = ", "is not TOML"),
    ],
)
def test_a_fault_is_refused_and_named(write, old: str, new: str, named: str) -> None:
    assert old in LINEAR
    path = write(LINEAR.replace(old, new))
    with pytest.raises(UsageError) as caught:
        load(path)
    assert named in str(caught.value)
    assert str(path) in str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        load(tmp_path / "none.toml")


def table(**changes) -> dict:
    part = {"batch": [1, 2], "tkv_tokens": [64, 128, 256], "step_ms": [[1, 2, 3], [4, 5, 6]]}
    prefill = {"chunk_tokens": [512], "context_tokens": [0], "step_ms": [[9]]}
    head = {"version": 1, "name": "n", "source": "s", "kind": "table"}
    return {**head, "prefill": prefill, "decode": part | changes}


def test_a_table_needs_its_shape() -> None:
    assert parse(table()).kind == "table"
    with pytest.raises(UsageError, match=r"needs 2 rows \(one for each of batch\) of 3 numbers"):
        parse(table(step_ms=[[1, 2, 3]]))
    with pytest.raises(UsageError, match="rising"):
        parse(table(batch=[2, 2]))


def test_profiles_are_values() -> None:
    profile = parse(table())
    assert replace(profile) == profile
    assert hash(replace(profile)) == hash(profile)
