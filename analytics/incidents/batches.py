"""Batches that recur at any rhythm, such as those of a job that runs at the start of every hour."""

import numpy as np

from analytics.incidents.statistics import Array
from analytics.incidents.tables import STEP

# A batch: more than so many times the median around it, and so many rows more, for half an hour at most.
_TIMES, _ROWS, _LONGEST = 3.0, 10.0, 1800 // STEP
# Periods over which the median is taken: two hours.
_AROUND = 2 * 3600 // STEP + 1
# A batch recurs if so many others have this share of its size at least.
_OTHERS, _SIZE = 3, 0.4


def without_batches(counts: Array, sampled: float) -> Array:
    """Return one series without its recurrent batches: in their periods it has the median around them.

    sampled: rows that stand for a count of one.
    """
    bound = _ROWS / max(sampled, 1e-9)
    if (counts > _TIMES * np.median(counts) + bound).sum() <= _OTHERS:
        return counts
    half = _AROUND // 2
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(counts, half, mode="reflect"), _AROUND)
    around = np.median(windows, axis=1)
    batches = _runs(counts > _TIMES * around + bound)
    sizes = np.array([(counts - around)[start:end].sum() for start, end in batches])
    result = counts.astype(float)
    for (start, end), size in zip(batches, sizes, strict=True):
        if end - start <= _LONGEST and (sizes >= _SIZE * size).sum() > _OTHERS:
            result[start:end] = around[start:end]
    return result


def _runs(flags: Array) -> list[tuple[int, int]]:
    """Return start and end of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(int), [0]])))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
