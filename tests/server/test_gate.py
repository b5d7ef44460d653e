"""The gate's rules, with requests that are plain strings and a clock moved by hand."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sendnn_bench.errors import SimError
from sendnn_bench.protocol import Advance
from server_plugin.sim.clock import VirtualClock
from server_plugin.sim.gate import Gate


class Bench:
    """A gate with its clock and the answers it gave."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.gate: Gate[str] = Gate(self.clock)
        self.answers: list[Advance] = []

    def grant(self, until_ns: int | None, submitted: int) -> None:
        self.gate.grant(until_ns, submitted, self.answers.append)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_closed_without_a_grant(bench: Bench) -> None:
    bench.gate.receive(0, 0, "a")
    assert not bench.gate.open
    assert bench.gate.turn(idle=True) == []


def test_waits_until_all_submitted_requests_came_in(bench: Bench) -> None:
    bench.grant(None, 2)
    bench.gate.receive(1, 0, "b")
    assert not bench.gate.open
    bench.gate.receive(0, 0, "a")
    assert bench.gate.open
    assert bench.gate.turn(idle=True) == ["a", "b"]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_admits_by_arrival_then_sequence_whatever_the_network_s_order(
    bench: Bench, order: tuple[int, ...]
) -> None:
    arrivals = {0: 10, 1: 5, 2: 5, 3: 0}
    bench.clock.jump(10)
    for seq in order:
        bench.gate.receive(seq, arrivals[seq], str(seq))
    bench.grant(None, 4)
    assert bench.gate.turn(idle=True) == ["3", "1", "2", "0"]


def test_idle_jumps_to_the_limit_and_answers(bench: Bench) -> None:
    bench.grant(700, 0)
    assert bench.gate.turn(idle=True) == []
    assert bench.answers == [Advance(700, "until", [])]
    assert not bench.gate.open


def test_idle_jumps_to_an_arrival_announced_ahead(bench: Bench) -> None:
    bench.gate.receive(0, 300, "a")
    bench.grant(700, 1)
    assert bench.gate.turn(idle=True) == ["a"]
    assert bench.clock.now_ns == 300


def test_idle_without_a_limit_answers_idle(bench: Bench) -> None:
    bench.grant(None, 0)
    bench.gate.turn(idle=True)
    assert bench.answers == [Advance(0, "idle", [])]


def test_busy_runs_on_until_the_limit_is_reached(bench: Bench) -> None:
    bench.grant(100, 0)
    assert bench.gate.turn(idle=False) == []
    assert bench.gate.open
    bench.clock.charge(150)
    bench.gate.turn(idle=False)
    assert bench.answers == [Advance(150, "until", [])]


def test_finished_requests_answer_in_sequence_order(bench: Bench) -> None:
    for seq in range(3):
        bench.gate.receive(seq, 0, str(seq))
    bench.grant(None, 3)
    bench.gate.turn(idle=True)
    bench.clock.charge(50)
    bench.gate.finish(2, 50)
    bench.gate.finish(0, 50)
    bench.gate.turn(idle=False)
    assert bench.answers == [Advance(50, "finished", [0, 2], [50, 50])]


def test_an_end_is_told_when_the_client_sees_it(bench: Bench) -> None:
    """The last token leaves the engine at 50 and reaches the client at 70, within the next step."""
    bench.gate.receive(0, 0, "a")
    bench.grant(None, 1)
    bench.gate.turn(idle=True)
    bench.clock.charge(50)
    bench.gate.finish(0, 70)
    assert bench.gate.turn(idle=False) == []
    assert bench.answers == []
    bench.clock.charge(50)
    bench.gate.turn(idle=False)
    assert bench.answers == [Advance(100, "finished", [0], [70])]


def test_an_idle_engine_jumps_to_when_the_client_sees_an_end(bench: Bench) -> None:
    bench.gate.receive(0, 0, "a")
    bench.grant(500, 1)
    bench.gate.turn(idle=True)
    bench.clock.charge(50)
    bench.gate.finish(0, 70)
    bench.gate.turn(idle=True)
    assert bench.answers == [Advance(70, "finished", [0], [70])]


def test_a_settled_request_counts_as_come_in_and_answers_without_time_passing(
    bench: Bench,
) -> None:
    bench.grant(None, 2)
    bench.gate.receive(0, 0, "a")
    bench.gate.settle(1)
    assert bench.gate.turn(idle=True) == []
    assert bench.answers == [Advance(0, "rejected", [1], [0])]


def test_settling_before_the_grant_is_told_by_the_grant(bench: Bench) -> None:
    bench.gate.settle(0)
    bench.grant(None, 1)
    bench.gate.turn(idle=True)
    assert bench.answers == [Advance(0, "rejected", [0], [0])]


def test_settling_what_came_in_changes_nothing(bench: Bench) -> None:
    bench.gate.receive(0, 0, "a")
    bench.gate.settle(0)
    bench.grant(None, 1)
    assert bench.gate.turn(idle=True) == ["a"]


def test_a_sequence_number_is_taken_once(bench: Bench) -> None:
    assert bench.gate.receive(0, 0, "a")
    assert not bench.gate.receive(0, 0, "again")
    bench.gate.settle(1)
    assert not bench.gate.receive(1, 0, "late")


def test_a_dropped_request_counts_as_finished(bench: Bench) -> None:
    bench.gate.receive(0, 500, "a")
    bench.gate.receive(1, 500, "b")
    assert bench.gate.drop_staged(lambda item: item == "a") == ["a"]
    bench.grant(None, 2)
    bench.gate.turn(idle=True)
    assert bench.answers == [Advance(0, "finished", [0], [0])]


def test_a_second_grant_is_refused_while_one_is_open(bench: Bench) -> None:
    bench.grant(None, 1)
    with pytest.raises(SimError, match="already open"):
        bench.grant(None, 1)


def test_submitted_never_goes_back(bench: Bench) -> None:
    bench.grant(None, 0)
    bench.gate.turn(idle=True)
    bench.gate.receive(0, 0, "a")
    bench.gate.receive(1, 0, "b")
    bench.grant(None, 2)
    bench.gate.finish(0, 0)
    bench.gate.turn(idle=False)
    with pytest.raises(SimError, match="went back from 2 to 1"):
        bench.grant(None, 1)


def test_describe_names_who_is_missing(bench: Bench) -> None:
    bench.gate.receive(0, 7, "a")
    bench.grant(900, 3)
    assert "not yet received [1, 2]" in bench.gate.describe()
    assert "grant until 900" in bench.gate.describe()


def test_requests_beyond_the_grant_come_early_and_stand_for_no_other(bench: Bench) -> None:
    bench.gate.receive(1, 500, "later")
    bench.grant(500, 1)
    assert not bench.gate.open  # number 0 is what the grant waits for
    bench.gate.receive(0, 0, "now")
    assert bench.gate.turn(idle=True) == ["now"]
    bench.clock.charge(600)
    assert bench.gate.turn(idle=False) == []
    assert bench.answers[-1].reason == "until"
    bench.grant(None, 2)
    assert bench.gate.turn(idle=False) == ["later"]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=20), st.randoms())
def test_any_network_order_gives_the_same_admissions(arrivals: list[int], random) -> None:
    """Each request runs 100 ns alone; the order and times of admission depend on arrivals only."""

    def admissions(order: list[int]) -> list[tuple[str, int]]:
        bench = Bench()
        for seq in order:
            bench.gate.receive(seq, arrivals[seq], str(seq))
        seen = []
        bench.grant(None, len(arrivals))
        while bench.gate.open:
            admitted = bench.gate.turn(idle=True)
            seen += [(item, bench.clock.now_ns) for item in admitted]
            bench.clock.charge(100 * len(admitted))
        return seen

    in_order = list(range(len(arrivals)))
    shuffled = in_order.copy()
    random.shuffle(shuffled)
    assert admissions(shuffled) == admissions(in_order)
