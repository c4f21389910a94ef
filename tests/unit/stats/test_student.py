"""Student's quantiles against a printed table, values of 10 digits, and closed forms."""

from __future__ import annotations

import math

import pytest

from tcpx_mpi.stats.student import student_quantile

#: E. T. Federighi, Extended tables of the percentage points of Student's t-distribution, Journal
#: of the American Statistical Association 54 (1959), by degrees of freedom.
PRINTED_PROBABILITIES = (0.90, 0.95, 0.975, 0.99, 0.995, 0.999, 0.9995)
PRINTED = {
    1: (3.078, 6.314, 12.706, 31.821, 63.657, 318.309, 636.619),
    4: (1.533, 2.132, 2.776, 3.747, 4.604, 7.173, 8.610),
    5: (1.476, 2.015, 2.571, 3.365, 4.032, 5.893, 6.869),
    9: (1.383, 1.833, 2.262, 2.821, 3.250, 4.297, 4.781),
    10: (1.372, 1.812, 2.228, 2.764, 3.169, 4.144, 4.587),
    29: (1.311, 1.699, 2.045, 2.462, 2.756, 3.396, 3.659),
    30: (1.310, 1.697, 2.042, 2.457, 2.750, 3.385, 3.646),
}
#: From `scipy.special.stdtrit` 1.17.1, which works by another way (the incomplete beta function).
PROBABILITIES = (0.90, 0.975, 0.999, 1 - 1e-6)
VALUES = {
    3: (1.637744354, 3.182446305, 10.21453185, 103.2994678),
    4: (1.533206274, 2.776445105, 7.173182220, 41.57785415),
    5: (1.475884049, 2.570581836, 5.893429531, 24.77102972),
    10: (1.372183641, 2.228138852, 4.143700494, 9.751995491),
    29: (1.311433647, 2.045229642, 3.396240288, 5.917105540),
    120: (1.288646234, 1.979930405, 3.159538743, 4.997443830),
}


@pytest.mark.parametrize("freedom", PRINTED)
def test_it_is_the_printed_table(freedom: int) -> None:
    found = [student_quantile(freedom, probability) for probability in PRINTED_PROBABILITIES]
    assert [round(value, 3) for value in found] == list(PRINTED[freedom])


@pytest.mark.parametrize("freedom", VALUES)
def test_it_is_right_to_a_millionth_far_out_too(freedom: int) -> None:
    found = [student_quantile(freedom, probability) for probability in PROBABILITIES]
    assert found == pytest.approx(VALUES[freedom], rel=1e-9)


@pytest.mark.parametrize("probability", [0.5001, 0.6, 0.9, 0.999, 0.99999])
def test_it_is_the_closed_forms_of_few_degrees(probability: float) -> None:
    tails = 4 * probability * (1 - probability)
    one = math.tan(math.pi * (probability - 0.5))
    two = (2 * probability - 1) * math.sqrt(2 / tails)
    four = 2 * math.sqrt(math.cos(math.acos(math.sqrt(tails)) / 3) / math.sqrt(tails) - 1)
    found = [student_quantile(freedom, probability) for freedom in (1, 2, 4)]
    assert found == pytest.approx([one, two, four], rel=1e-6)


def test_both_halves_are_alike_and_have_no_end() -> None:
    assert student_quantile(7, 0.1) == pytest.approx(-student_quantile(7, 0.9))
    assert student_quantile(7, 0.5) == pytest.approx(0.0, abs=1e-12)
    assert student_quantile(7, 1.0) == math.inf


@pytest.mark.parametrize(("freedom", "probability"), [(0, 0.9), (5, 0.0), (5, 1.1)])
def test_there_is_none_of_anything_else(freedom: int, probability: float) -> None:
    with pytest.raises(ValueError, match="no quantile"):
        student_quantile(freedom, probability)
