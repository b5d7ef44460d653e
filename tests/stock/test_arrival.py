"""Arrivals at the same time keep the order in which they were admitted."""

from __future__ import annotations

import heapq

from server_plugin.sim.arrival import Arrival


def test_ties_go_by_order() -> None:
    first, second, earlier = Arrival(2.0, 0), Arrival(2.0, 1), Arrival(1.0, 2)
    assert first < second
    assert second > first
    assert first != second
    assert max(second, first) is second
    heap = [second, first, earlier]
    heapq.heapify(heap)
    assert [heapq.heappop(heap) for _ in range(3)] == [earlier, first, second]


def test_it_is_a_number_among_numbers() -> None:
    arrival = Arrival(2.5, 7)
    assert arrival == 2.5
    assert 2.0 < arrival < 3.0
    assert arrival - 1.0 == 1.5
    assert hash(arrival) == hash(Arrival(2.5, 7))
