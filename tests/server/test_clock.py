"""Clocks: virtual time moves when told; paced time follows deadlines on a fake wall clock."""

from __future__ import annotations

import pytest

from server_plugin.sim.clock import PacedClock, VirtualClock

MS = 1_000_000


class Wall:
    """Real time that passes only by sleeping or by hand."""

    def __init__(self) -> None:
        self.now_ns = 5_000 * MS

    def monotonic_ns(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


def paced(speed: float) -> tuple[PacedClock, Wall]:
    wall = Wall()
    return PacedClock(speed, wall.monotonic_ns, wall.sleep), wall


def test_virtual_time_moves_by_cost_and_jump_only() -> None:
    clock = VirtualClock()
    assert clock.begin_step() == 0
    assert clock.charge(50) == 50
    clock.jump(200)
    assert (clock.now_ns, clock.arrival_ns()) == (200, 200)


def test_time_never_goes_back() -> None:
    clock = VirtualClock()
    clock.charge(50)
    with pytest.raises(ValueError, match="cannot go back"):
        clock.jump(49)
    with pytest.raises(ValueError, match="cannot cost"):
        clock.charge(-1)


@pytest.mark.parametrize("speed", [1, 10])
def test_a_paced_step_lasts_its_cost_divided_by_the_speed(speed: float) -> None:
    clock, wall = paced(speed)
    clock.begin_step()
    clock.charge(100 * MS)
    assert wall.now_ns == 5_000 * MS + 100 * MS // speed
    assert clock.now_ns == 100 * MS


def test_a_late_step_is_caught_up_and_nothing_drifts() -> None:
    clock, wall = paced(1)
    clock.begin_step()
    wall.now_ns += 130 * MS  # the host was slow: 30 ms over the step's cost
    clock.charge(100 * MS)
    assert clock.late_ns == 30 * MS
    clock.begin_step()
    clock.charge(100 * MS)
    assert wall.now_ns == 5_000 * MS + 200 * MS


def test_after_idling_a_step_starts_at_the_present() -> None:
    clock, wall = paced(2)
    clock.begin_step()
    clock.charge(100 * MS)
    clock.idle()
    wall.now_ns += 500 * MS
    assert clock.arrival_ns() == 1_100 * MS
    assert clock.begin_step() == 1_100 * MS


def test_reset_goes_back_to_zero() -> None:
    clock, wall = paced(1)
    clock.begin_step()
    clock.charge(100 * MS)
    wall.now_ns += 7 * MS
    clock.reset()
    assert (clock.now_ns, clock.arrival_ns(), clock.late_ns) == (0, 0, 0)
