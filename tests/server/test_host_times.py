"""Where the host's time goes, and what of it is charged."""

from __future__ import annotations

from server_plugin.sim.host_times import HostTimes


def test_overhead_is_schedule_prepare_and_update_and_is_taken_once() -> None:
    times = HostTimes()
    for phase, ns in {
        "schedule": 10,
        "prepare": 20,
        "mock": 400,
        "sample": 80,
        "update": 5,
    }.items():
        times.add(phase, ns)
    assert times.take_uncharged_ns() == 35
    assert times.take_uncharged_ns() == 0


def test_what_passes_from_one_step_to_the_next_lies_between() -> None:
    times = HostTimes()
    times.step_begins(1_000)
    assert "between" not in times.summary()
    times.step_ended()
    ended_ns = times._step_ended_ns
    times.step_begins(ended_ns + 7_000)
    assert times.summary()["between"]["mean_us"] == 7.0


def test_the_summary_has_mean_p99_and_total() -> None:
    times = HostTimes()
    for ns in range(1_000, 101_000, 1_000):
        times.add("update", ns)
    assert times.summary() == {"update": {"mean_us": 50.5, "p99_us": 100.0, "total_s": 0.00505}}
    times.reset()
    assert times.summary() == {}
