"""Arrival times in a total order."""

from __future__ import annotations


class Arrival(float):
    """An arrival time whose ties are broken by the order of admission.

    The priority queue would break them by request id, which is random.
    """

    __slots__ = ("order",)
    order: int

    def __new__(cls, time_s: float, order: int) -> Arrival:
        self = super().__new__(cls, time_s)
        self.order = order
        return self

    @property
    def key(self) -> tuple[float, int]:
        """Time in seconds, then order."""
        return float(self), self.order

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, Arrival) else float(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: float) -> bool:
        return self.key < other.key if isinstance(other, Arrival) else float(self) < other

    def __gt__(self, other: float) -> bool:
        return self.key > other.key if isinstance(other, Arrival) else float(self) > other

    __hash__ = float.__hash__
