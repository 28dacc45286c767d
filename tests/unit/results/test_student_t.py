from __future__ import annotations

import itertools
import math

import pytest

from nemo_gym.results.student_t import own_t_quantile, t_quantile

# Published tables, taken to more digits with arbitrary precision arithmetic on the incomplete beta function.
TWO_SIDED_95 = {
    1: 12.706204736174693,
    2: 4.302652729749462,
    3: 3.1824463052837084,
    4: 2.7764451051977934,
    5: 2.5705818356363148,
    9: 2.262157162798205,
    10: 2.2281388519862742,
    30: 2.0422724563012378,
    100: 1.9839715185235519,
    1000: 1.9623390808264081,
    100_000: 1.9599877075346093,
}


@pytest.mark.parametrize(("degrees", "expected"), TWO_SIDED_95.items())
def test_table_of_95_percent(degrees: int, expected: float) -> None:
    assert own_t_quantile(0.975, degrees) == pytest.approx(expected, rel=1e-12)
    assert t_quantile(0.975, degrees) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("probability", [0.5001, 0.6, 0.75, 0.9, 0.99, 0.9995, 1 - 1e-9])
def test_four_degrees_have_a_closed_form(probability: float) -> None:
    alpha = 4 * probability * (1 - probability)
    root = math.sqrt(alpha)
    expected = 2 * math.sqrt(math.cos(math.acos(root) / 3) / root - 1)
    assert own_t_quantile(probability, 4) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("degrees", [1, 2, 3, 7, 40, 999, 1001])
def test_is_odd_around_the_median_and_grows(degrees: int) -> None:
    assert own_t_quantile(0.5, degrees) == 0.0
    assert own_t_quantile(0.1, degrees) == -own_t_quantile(0.9, degrees)
    assert own_t_quantile(0.8, degrees) < own_t_quantile(0.9, degrees) < own_t_quantile(0.9999, degrees)


def test_both_methods_meet_where_they_take_over() -> None:
    values = [own_t_quantile(0.975, degrees) for degrees in (998, 999, 1000, 1001)]
    steps = [a - b for a, b in itertools.pairwise(values)]
    assert max(steps) / min(steps) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(("probability", "degrees"), [(0.0, 3), (1.0, 3), (0.9, 0), (0.9, -1), (math.nan, 3)])
def test_refuses_what_has_no_quantile(probability: float, degrees: float) -> None:
    with pytest.raises(ValueError, match="no t quantile"):
        t_quantile(probability, degrees)
