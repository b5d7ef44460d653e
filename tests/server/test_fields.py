"""The simulation fields of a request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sendnn_bench.protocol import XARGS
from server_plugin.sim.fields import SimFields, parse

SESSION = {"sendnn_sim_session": "s", "sendnn_sim_seq": 3, "sendnn_sim_arrival_ns": 7}


def test_a_request_without_fields() -> None:
    assert parse(None) == parse({}) == parse({"other": 1}) == SimFields()


def test_all_fields() -> None:
    args = {**SESSION, "sendnn_sim_output_tokens": 9, "sendnn_sim_output_source": "dataset"}
    assert parse(args) == SimFields("s", 3, 7, 9, "dataset")


def test_an_output_length_works_without_a_session() -> None:
    assert parse({"sendnn_sim_output_tokens": 9}) == SimFields(output_tokens=9)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"sendnn_sim_seq": -1}, "sendnn_sim_seq"),
        ({"sendnn_sim_seq": True}, "sendnn_sim_seq"),
        ({"sendnn_sim_seq": None}, "sendnn_sim_seq"),
        ({"sendnn_sim_arrival_ns": 1.5}, "sendnn_sim_arrival_ns"),
        ({"sendnn_sim_arrival_ns": 2**70}, "sendnn_sim_arrival_ns"),
        ({"sendnn_sim_session": ""}, "sendnn_sim_session"),
        ({"sendnn_sim_session": "x" * 129}, "sendnn_sim_session"),
        ({"sendnn_sim_output_tokens": 0}, "sendnn_sim_output_tokens"),
        ({"sendnn_sim_output_source": ["a"]}, "sendnn_sim_output_source"),
    ],
)
def test_a_wrong_field_is_named(changed: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        parse({**SESSION, **changed})


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=200), st.lists(st.text())
)


@given(st.dictionaries(st.sampled_from(XARGS), ANYTHING))
def test_anything_is_parsed_or_refused(args: dict[str, object]) -> None:
    try:
        fields = parse(args)
    except ValueError as refusal:
        fields, message = SimFields(), str(refusal)
    else:
        message = "sendnn_sim_"
    assert "sendnn_sim_" in message
    assert fields.output_tokens is None or 0 < fields.output_tokens <= 2**31
