"""Excess: more bad events than usual for the same keys."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f


def excess(windows: DataFrame, keys: Sequence[str], floor: float) -> DataFrame:
    """Add the usual rate to windows (time, *keys, bad, total): rate, usual, expected, score.

    usual: the median of the same keys' rates over all windows, at least `floor`, so that one failure among ten is no
    alarm where there was none before. score: number of standard deviations of a Poisson count by which `bad` exceeds
    it; half a count of continuity correction keeps small windows small.
    """
    same = Window.partitionBy(*keys)
    rate = f.col("bad") / f.col("total")
    usual = f.greatest(f.percentile_approx("rate", 0.5).over(same), f.lit(floor))
    expected = f.col("total") * f.col("usual")
    score = (f.col("bad") - f.col("expected") - 0.5) / f.sqrt(f.col("expected") + 1)
    return (
        windows.where(f.col("total") > 0)
        .withColumn("rate", rate)
        .withColumn("usual", usual)
        .withColumn("expected", expected)
        .withColumn("score", score)
    )
