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
    assert clock.describe_pace()["late_worst_ms"] == 30
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


def test_a_request_arrives_when_it_came_not_when_the_step_that_it_met_has_ended() -> None:
    wall = Wall()
    clock = PacedClock(2, wall.monotonic_ns, wall.sleep, lambda: 1e9 + wall.now_ns / 1e9)
    clock.begin_step()
    wall.now_ns += 10 * MS
    stamp_s = 1e9 + wall.now_ns / 1e9
    clock.charge(100 * MS)
    assert clock.arrival_ns() == 100 * MS
    assert clock.arrival_ns(stamp_s) == pytest.approx(20 * MS, abs=1000)
    assert clock.arrival_ns(stamp_s + 1) == 100 * MS, "never in the future"
    assert clock.arrival_ns(stamp_s - 1) == 0, "never before the origin"


def test_reset_goes_back_to_zero() -> None:
    clock, wall = paced(1)
    clock.begin_step()
    clock.charge(100 * MS)
    wall.now_ns += 7 * MS
    clock.reset()
    assert (clock.now_ns, clock.arrival_ns(), clock.describe_pace()["steps"]) == (0, 0, 0)


def busy(clock: PacedClock, wall: Wall, *late_ms: float) -> None:
    """One busy period: steps of 100 ms that end this much after their deadlines."""
    began_ns = clock.begin_step()
    for count, late in enumerate(late_ms, 1):
        clock.begin_step()
        wall.now_ns = max(wall.now_ns, 5_000 * MS + began_ns + count * 100 * MS + int(late * MS))
        clock.charge(100 * MS)
    clock.idle()


def test_late_steps_are_counted_and_told_once_and_after_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, wall = paced(1)
    busy(clock, wall, 0, 9.9, 0)
    assert not caplog.messages, "up to a tenth of a step is no lateness"
    busy(clock, wall, 30, 20, 0)
    assert len(caplog.messages) == 2
    assert "30.0 ms late" in caplog.messages[0]
    assert "2 of the last 3 steps ended late, by 25.0 ms on average" in caplog.messages[1]
    busy(clock, wall, 0, 0)
    clock.idle()
    assert len(caplog.messages) == 2
    assert clock.describe_pace() == {
        "speed": 1,
        "steps": 8,
        "late_steps": 2,
        "late_total_ms": 50,
        "late_worst_ms": 30,
    }


def test_a_host_s_timer_is_no_lateness(caplog: pytest.LogCaptureFixture) -> None:
    clock, wall = paced(1)
    for _ in range(3):
        clock.begin_step()
        wall.now_ns += MS // 2
        clock.charge(0)
        clock.idle()
    assert clock.describe_pace()["late_steps"] == 0
    assert not caplog.messages
