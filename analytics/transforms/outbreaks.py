"""Outbreaks: where and when bad events are far more frequent than usual, and the common factor behind them."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from analytics.transforms.episodes import episodes
from analytics.transforms.excess import excess

# Minimum excess: deviations of a Poisson count, and factor above the usual rate.
SCORE = 6.0
TIMES = 3.0
# Windows with fewer bad events are ignored.
LEAST = 5.0
# A culprit has at least this share of the bad events, and this much more than its share of all events.
SHARE = 0.75
LIFT = 0.25

_KEYS = ("level", "subject")


def outbreaks(cells: DataFrame, levels: Sequence[str], suspects: Sequence[str], every: str, floor: float) -> DataFrame:
    """Return outbreaks at every value of each of the columns `levels`.

    cells: time (windows `every` long), the columns `levels` and `suspects`, bad, total. floor: a rate that is never
    remarkable. A suspect is likely if it has nearly all bad events, though not nearly all events. Among several, the
    one with the greatest difference is named; among nearly equal ones, the first of `suspects`: list clients before
    their versions.

    Columns: level, subject, start, end, bad, total, observed and expected (rates), score (of the worst window);
    dimension, name and share of the likely culprit, null without one.
    """
    # One pass: possible evidence travels with the windows, and is dropped with the unremarkable ones.
    columns = dict.fromkeys([*levels, *suspects])
    level = f.explode(f.array(*(f.struct(f.lit(name).alias("level"), f.col(name).alias("subject")) for name in levels)))
    parts = f.struct(*suspects, "bad", "total").alias("part")
    windows = (
        cells.groupBy("time", *columns)
        .agg(f.sum("bad").alias("bad"), f.sum("total").alias("total"))
        .select("time", level.alias("at"), "bad", "total", parts)
        .select("time", "at.*", "bad", "total", "part")
        .where(f.col("subject").isNotNull())
        .groupBy("time", *_KEYS)
        .agg(f.sum("bad").alias("bad"), f.sum("total").alias("total"), f.collect_list("part").alias("parts"))
        .withColumn("parts", f.when(f.col("bad") >= LEAST, f.col("parts")))
    )
    bad = excess(windows, _KEYS, floor).where(
        (f.col("score") >= SCORE) & (f.col("bad") >= LEAST) & (f.col("rate") >= TIMES * f.col("usual"))
    )
    measures = (
        f.sum("bad").alias("bad"),
        f.sum("total").alias("total"),
        (f.sum("bad") / f.sum("total")).alias("observed"),
        (f.sum("expected") / f.sum("total")).alias("expected"),
        f.max("score").alias("score"),
        f.flatten(f.collect_list("parts")).alias("parts"),
    )
    return _with_culprit(episodes(bad, _KEYS, every, measures), suspects)


def _with_culprit(found: DataFrame, suspects: Sequence[str]) -> DataFrame:
    """Replace the evidence with the likely culprit. A level is no suspect of its own outbreak."""
    kept = [*_KEYS, "start", "end", "bad", "total", "observed", "expected", "score"]
    each = f.explode(
        f.array(
            *(
                f.struct(
                    f.lit(-place).alias("place"), f.lit(name).alias("dimension"), f.col(f"part.{name}").alias("name")
                )
                for place, name in enumerate(suspects)
            )
        )
    )
    named = found.select(*kept, f.explode("parts").alias("part")).select(
        *kept, each.alias("suspect"), f.col("part.bad").alias("part_bad"), f.col("part.total").alias("part_total")
    )
    sums = named.groupBy(*kept, "suspect").agg(
        f.sum("part_bad").alias("part_bad"), f.sum("part_total").alias("part_total")
    )
    # Share of the whole episode, so that rows without a broker, for example, are counted.
    share = f.col("part_bad") / f.col("bad")
    lift = share - f.col("part_total") / f.col("total")
    likely = (
        f.col("suspect.name").isNotNull()
        & (f.col("suspect.dimension") != f.col("level"))
        & (share >= SHARE)
        & (lift >= LIFT)
    )
    # Among nearly equal suspects the first; then by name, so that every run gives the same result.
    rank = (f.round(lift, 1).alias("lift"), "suspect.place", "suspect.name")
    case = f.when(likely, f.struct(*rank, "suspect.dimension", share.alias("share")))
    best = sums.groupBy(*kept).agg(f.max(case).alias("case"))
    return best.select(*kept, *(f.col(f"case.{name}").alias(name) for name in ("dimension", "name", "share")))


def without_repeats(found: DataFrame, wide: str, narrow: str) -> DataFrame:
    """Remove outbreaks that repeat another level's.

    At the wide level (such as brokers) outbreaks confined to one value of the narrow level (such as topics) or to one
    culprit there are dropped; at the narrow level, those whose culprit is a value of the wide level with an outbreak at
    the time.
    """
    of_wide = f.col("level") == wide
    own = found.where(~of_wide | f.col("dimension").isNull() | (f.col("dimension") == "code"))
    about = f.when(of_wide, f.col("subject")).when(f.col("dimension") == wide, f.col("name"))
    times = f.collect_list(f.when(of_wide, f.struct("start", "end"))).over(Window.partitionBy("about"))
    told = own.withColumn("about", about).withColumn("times", times)
    covered = f.exists("times", lambda time: (time["start"] < f.col("end")) & (time["end"] > f.col("start")))
    explained = (f.col("level") == narrow) & f.col("about").isNotNull() & covered
    return told.where(~explained).drop("about", "times")


def about(found: DataFrame, *names: str) -> DataFrame:
    """Add columns of these names, filled where the level or the culprit has them."""
    return found.select(
        "*",
        *(
            f.when(f.col("level") == name, f.col("subject")).when(f.col("dimension") == name, f.col("name")).alias(name)
            for name in names
        ),
    )


_WORDS = {"client_id": "client", "code": "request"}


def culprit_phrase(suspects: Sequence[str]) -> Column:
    """Return the culprit as the end of a sentence, or an empty text."""
    words = f.create_map(*(f.lit(word) for name in suspects for word in (name, _WORDS.get(name, name))))
    text = f.format_string("; %.0f %% of it at %s %s", f.col("share") * 100, words[f.col("dimension")], f.col("name"))
    return f.when(f.col("dimension").isNotNull(), text).otherwise("")
