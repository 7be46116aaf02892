"""Outbreaks: where something bad is far more frequent than usual, for how long, and who is behind it."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from analytics.transforms.episodes import episodes
from analytics.transforms.excess import excess

# How far above what is usual: deviations of a Poisson count, and times the usual rate.
SCORE = 6.0
TIMES = 3.0
# Fewer than that in a window are no outbreak.
LEAST = 5.0
# A culprit has that share of what is bad, and so much more than its share of everything.
SHARE = 0.75
LIFT = 0.25

_KEYS = ("level", "subject")


def outbreaks(cells: DataFrame, levels: Sequence[str], suspects: Sequence[str], every: str, floor: float) -> DataFrame:
    """Outbreaks at every value of each of the columns `levels`.

    cells: time (windows `every` long), the columns `levels` and `suspects`, bad, total. floor: the rate that is never
    remarkable. A suspect is likely if it has nearly all that is bad, though not nearly all that there is. Of several
    the one with the greatest difference is named, and of those about alike the first of `suspects`: let clients come
    before their versions.

    level, subject, start, end, bad, total, observed and expected (rates), score (of the worst window); dimension, name
    and share of the likely culprit, null where there is none.
    """
    # One pass: what may become evidence travels with the windows, and is dropped with those that are unremarkable.
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
    return _blamed(episodes(bad, _KEYS, every, measures), suspects)


def _blamed(found: DataFrame, suspects: Sequence[str]) -> DataFrame:
    """With the likely culprit in place of the evidence. A level is no suspect of its own."""
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
    # Of all of the episode, so that what has no broker, say, is not left out of account.
    share = f.col("part_bad") / f.col("bad")
    lift = share - f.col("part_total") / f.col("total")
    likely = (
        f.col("suspect.name").isNotNull()
        & (f.col("suspect.dimension") != f.col("level"))
        & (share >= SHARE)
        & (lift >= LIFT)
    )
    # Of those that are about alike the first; at last the name, so that every run says the same.
    rank = (f.round(lift, 1).alias("lift"), "suspect.place", "suspect.name")
    case = f.when(likely, f.struct(*rank, "suspect.dimension", share.alias("share")))
    best = sums.groupBy(*kept).agg(f.max(case).alias("case"))
    return best.select(*kept, *(f.col(f"case.{name}").alias(name) for name in ("dimension", "name", "share")))


def told_once(found: DataFrame, wide: str, narrow: str) -> DataFrame:
    """Of outbreaks at two levels, those that tell something new.

    At the wide level (brokers, say) those that are confined to one of the narrow level (topics) or to somebody there
    are left out; at the narrow level those whose culprit is one of the wide level with an outbreak at the time.
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
    """With columns of those names, where the level or the culprit says so."""
    return found.select(
        "*",
        *(
            f.when(f.col("level") == name, f.col("subject")).when(f.col("dimension") == name, f.col("name")).alias(name)
            for name in names
        ),
    )


_WORDS = {"client_id": "client", "code": "request"}


def blame(suspects: Sequence[str]) -> Column:
    """The culprit as the end of a sentence, or nothing."""
    words = f.create_map(*(f.lit(word) for name in suspects for word in (name, _WORDS.get(name, name))))
    text = f.format_string("; %.0f %% of it at %s %s", f.col("share") * 100, words[f.col("dimension")], f.col("name"))
    return f.when(f.col("dimension").isNotNull(), text).otherwise("")
