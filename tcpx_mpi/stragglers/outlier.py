"""Outlier test: is one rank slower than the others, by links measured all at once? Pure.

All times are of the same iterations, so a rank can be compared with the others quarter by quarter
of the row: a rank that is slow is slow in each, one whose core another process took for a while is
not. What is compared is time, not its logarithm: a late message is late by so many microseconds,
however quick the link was.

The noise against a rank is that of the others alone. Its own links would be noise of its own
making: where there are four ranks they are half of all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

#: So many times the noise floor must a difference be, and at least this share.
TIMES_NOISE = 5.0
LEAST_SHARE = 0.05
#: Of a row.
QUARTERS = 4
#: Fewer links of a rank, or of the others, tell nothing.
LEAST_LINKS = 2
#: Links that are the slowest by chance are so in one of as many orders of all links, and nothing
#: here is measured again.
_RARE = 1000
#: Few links may be alike by chance, and are no measure of how much links differ. Beside one other a
#: rank would have to be slower by this share, beside n by an nth of it.
SHARE_OF_ONE = 1.5

Times = NDArray[np.float64]


@dataclass(frozen=True)
class Outlier:
    """One rank against the others, ns."""

    #: The median link of the others.
    good_ns: float
    #: By how much the median link of the rank is over that,
    typical_ns: float
    #: and by how much even its best link is, and its median link in its best quarter: the lesser.
    certain_ns: float
    #: A standard deviation of the others' links, or of a quarter of one: the larger.
    noise_ns: float
    #: How many links the rank has, and how many there are without it.
    own: int
    others: int
    #: Whether each quarter of its links is above all of the others', and hardly by chance.
    apart: bool = False

    @property
    def is_slow(self) -> bool:
        return self.certain_ns > (self._share_ns if self.apart else self.least_ns)

    @property
    def least_ns(self) -> float:
        """The least `certain_ns` that counts, by the noise."""
        return max(TIMES_NOISE * self.noise_ns, self._share_ns)

    @property
    def _share_ns(self) -> float:
        return max(LEAST_SHARE, SHARE_OF_ONE / self.others) * self.good_ns

    @property
    def least_factor(self) -> float:
        """The same over the good."""
        return 1 + self.least_ns / self.good_ns

    @property
    def certain_factor(self) -> float:
        """`certain_ns` beside the good, as a factor."""
        return 1 + self.certain_ns / self.good_ns

    @property
    def by_noise(self) -> bool:
        """Whether it is the noise that asks for so much."""
        return self.least_ns <= TIMES_NOISE * self.noise_ns


def outlier_of(own: Times, others: Times) -> Outlier | None:
    """Times [link, quarter] of the links of one rank, and of all links without it.

    None if either are too few.
    """
    if min(len(own), len(others)) < LEAST_LINKS:
        return None
    by_link = np.sort(np.median(others, axis=1))
    good = float(_middle(by_link))
    own_by_link = np.median(own, axis=1)
    by_quarter = _middle(np.sort(own, axis=0)) - _middle(np.sort(others, axis=0))
    return Outlier(
        good_ns=good,
        typical_ns=float(_middle(np.sort(own_by_link))) - good,
        certain_ns=min(float(own_by_link.min()) - good, float(by_quarter.min())),
        noise_ns=max(_noise_between(by_link), _noise_within(others)),
        own=len(own),
        others=len(others),
        apart=orders(own, others) >= _RARE and gap(own, others) > 1,
    )


def gap(own: Times, others: Times) -> float:
    """The least time of a rank over the most of the others: above 1 they stand apart."""
    return float(own.min() / others.max())


def orders(own: Times, others: Times) -> int:
    """In how many orders of all links those of a rank are the slowest in one."""
    return math.comb(len(own) + len(others), len(own))


def _middle(in_order: Times) -> Times | np.float64:
    """The median, of an even number the lower one: the good half has it."""
    middle: Times | np.float64 = in_order[(len(in_order) - 1) // 2]
    return middle


def _noise_between(in_order: Times) -> float:
    """From the fastest to the median, over what that is of as many normal values.

    Of three links to the slowest: two of them would be a chance of one.
    """
    count = len(in_order)
    upto = min(count - 1, max(2, count // 2))
    spread = float(in_order[upto] - in_order[0])
    return spread / (_expected(upto, count) - _expected(0, count))


def _expected(place: int, count: int) -> float:
    """Expected normal order statistics (Blom 1958)."""
    return NormalDist().inv_cdf((place + 0.625) / (count + 0.25))


def _noise_within(times: Times) -> float:
    """The noise within one quarter of one link: between links that are next to each other in time,
    whose difference has nothing of what all of them have in common.
    """
    degrees = times.shape[1] - 1
    if degrees < 1:
        return 0.0
    in_order = times[np.argsort(np.median(times, axis=1))]
    found = np.diff(in_order, axis=0).std(axis=1, ddof=1) / math.sqrt(2)
    # The median of such deviations is below the true one (Wilson & Hilferty 1931).
    below = math.pow(1 - 2 / (9 * degrees), 1.5)
    return float(np.median(found)) / below
