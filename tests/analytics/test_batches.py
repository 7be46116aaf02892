"""Batches that recur are usual; one that does not is none."""

import numpy as np
import pytest

from analytics.incidents.batches import without_batches

_HOURLY = np.arange(2 * 288) % 12 == 0


def _traffic() -> np.ndarray:
    random = np.random.default_rng(2)
    return random.poisson(np.where(_HOURLY, 60.0, 4.0)).astype(float)


def test_hourly_batches_are_removed() -> None:
    plain = without_batches(_traffic(), 1.0)
    assert plain.max() <= 20
    assert plain[~_HOURLY] == pytest.approx(_traffic()[~_HOURLY])


def test_upload_among_hourly_batches_stays() -> None:
    counts = _traffic()
    counts[300:309] += 60
    assert (without_batches(counts, 1.0)[300:309] >= 50).all()


def test_much_larger_batch_than_the_others_stays() -> None:
    counts = _traffic()
    counts[240] = 600
    assert without_batches(counts, 1.0)[240] == 600


def test_traffic_without_batches_is_the_same() -> None:
    counts = np.random.default_rng(3).poisson(10.0, 600).astype(float)
    assert (without_batches(counts, 1.0) == counts).all()


def test_few_sampled_rows_are_no_batch() -> None:
    counts = np.where(_HOURLY, 25.0, 0.0)
    assert (without_batches(counts, 0.2) == counts).all()
