"""Intervals and the dispersion of counts."""

import numpy as np

from analytics.incidents.statistics import dispersion, intervals


def test_intervals_are_disjoint_and_best_first() -> None:
    values = np.array([-1.0, 3, 3, -9, 2, 2, -1])
    assert [(each.start, each.end, each.gain) for each in intervals(values, 3.0)] == [(1, 3, 6.0), (4, 6, 4.0)]


def test_dispersion_leaves_out_a_stop() -> None:
    expected = np.full(288, 9.0)
    seen = np.random.default_rng(1).poisson(expected).astype(float)
    seen[150:] = 0.0
    assert dispersion(seen, expected, 12) < 2


def test_dispersion_tells_batches_from_single_messages() -> None:
    random = np.random.default_rng(1)
    expected = np.full(4800, 5.0)
    assert dispersion(random.poisson(5, 4800), expected, 12) < 1.3
    assert 4 < dispersion(8 * random.poisson(5 / 8, 4800), expected, 12) < 12
