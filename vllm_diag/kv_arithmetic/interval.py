"""A whole number that is certain only to lie between two bounds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interval:
    """The true number is at least ``low`` and at most ``high``."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"no number lies between {self.low} and {self.high}")

    @classmethod
    def exactly(cls, number: int) -> Interval:
        """Return the interval that holds ``number`` alone."""
        return cls(number, number)

    @property
    def exact(self) -> bool:
        """Whether there is only one number it can be."""
        return self.low == self.high

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)

    def __contains__(self, number: int) -> bool:
        return self.low <= number <= self.high

    def __str__(self) -> str:
        return f"{self.low:,}" if self.exact else f"{self.low:,} to {self.high:,}"
