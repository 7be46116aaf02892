import base64
import zlib
from random import Random

import pytest

from proxy.tools.bench.histogram import Histogram

_VALUES = (0, 0, 1, 7, 2047, 2048, 2049, 5000, 65535, 65536, 1_234_567, 3_000_000_000, *(900,) * 300)
# The same values by the Python package hdrhistogram 0.10.8, with bounds of 1 and 3,600,000,000 and three digits.
_REFERENCE = "HISTFAAAADt4nJNpmSzMwMAgxQABzFCaEURcm7yEwf4DRICFiZPpO+8Nls+CTCwHhZm22zAxPXdi2r+ZkQkAKzsMCQ=="


def _histogram(values: tuple[int, ...]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram


def _payload(encoded: str) -> bytes:
    return zlib.decompress(base64.b64decode(encoded)[8:])


def test_encoding_is_that_of_hdrhistogram() -> None:
    assert _payload(_histogram(_VALUES).encode()) == _payload(_REFERENCE)


def test_percentiles_are_those_of_hdrhistogram() -> None:
    histogram = _histogram(_VALUES)
    assert [histogram.percentile(percent) for percent in (1, 50, 99)] == [1, 900, 65535]
    assert (len(histogram), histogram.highest, histogram.percentile(100)) == (312, 3_000_000_000, 3_000_000_000)


@pytest.mark.parametrize("seed", range(5))
def test_percentiles_are_exact_to_a_thousandth(seed: int) -> None:
    random = Random(seed)
    values = sorted(int(random.lognormvariate(8, 2)) for _ in range(5000))
    histogram = _histogram(tuple(values))
    for percent in (0.1, 10, 50, 90, 99, 99.9):
        exact = values[max(round(percent / 100 * len(values)), 1) - 1]
        assert exact <= histogram.percentile(percent) <= exact * 1.001 + 1
    assert histogram.mean == pytest.approx(sum(values) / len(values))


def test_values_out_of_bounds_are_counted_at_the_bounds() -> None:
    histogram = _histogram((-5, 10**12))
    assert (histogram.percentile(50), histogram.highest) == (0, 3_600_000_000)


def test_empty_histogram_is_zero() -> None:
    assert (Histogram().percentile(99), Histogram().mean, Histogram().highest) == (0, 0.0, 0)
