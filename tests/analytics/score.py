"""Recall and precision of the detectors by incident, by seed: `python -m tests.analytics.score --seeds 11-20`.

docs/analytics.md says which seeds were used to choose thresholds and to find errors. A baseline of z-scores is judged
beside it.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from analytics.incidents import detection
from analytics.incidents.engines import by_duckdb
from analytics.incidents.tables import Tables
from tests.analytics.field import zscores
from tests.analytics.field.judging import Judgement, judge, lines
from tests.analytics.field.records import generate

# Least recall and precision, over all seeds.
_LEAST = 0.9


def tables(root: Path) -> Tables:
    """Return the tables of generated records."""
    requests, connections = (
        [str(path) for path in sorted((root / name).rglob("*.parquet"))] for name in ("requests", "connections")
    )
    return by_duckdb(requests, connections)


def score(seed: int, scale: float = 0.75, most: int = 28) -> tuple[Judgement, Judgement, str]:
    """Return the judgement of a seed, that of the baseline, and a line about the records."""
    with tempfile.TemporaryDirectory() as folder:
        planted = generate(Path(folder), seed, scale, most)
        begun = time.monotonic()
        made = tables(Path(folder))
        summed = time.monotonic()
        found = detection.detect(made)
        done = time.monotonic()
        requests = made.totals[made.totals["dimension"] == "replica"]["rows_"].sum()
    kinds = len({each.kind for each in planted})
    text = (
        f"seed {seed}: {requests:,.0f} records, {len(planted)} incidents of {kinds} kinds,"
        f" {summed - begun:.0f} s for the tables, {done - summed:.0f} s for the detectors"
    )
    return judge(found, planted), judge(zscores.detect(made), planted), text


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.analytics.score", description="Scores the detectors.")
    parser.add_argument("--seeds", default="11-20", help="a seed, or first-last (%(default)s)")
    parser.add_argument("--scale", type=float, default=0.75, help="of all rates (%(default)s)")
    options = parser.parse_args(arguments)
    first, _, last = options.seeds.partition("-")
    whole, baseline = Counter[str](), Counter[str]()
    for seed in range(int(first), int(last or first) + 1):
        judgement, simple, text = score(seed, options.scale)
        print(text)
        print("".join(f"  {line}\n" for line in lines(judgement)), end="")
        print(f"  recall {judgement.recall:.3f}, precision {judgement.precision:.3f};", end=" ")
        print(f"z-scores: recall {simple.recall:.3f}, precision {simple.precision:.3f}", flush=True)
        for counts, each in ((whole, judgement), (baseline, simple)):
            counts["right"] += len(each.matches)
            counts["missed"] += len(each.missed)
            counts["wrong"] += len(each.near) + len(each.repeated) + len(each.false)
    recall, precision = (whole["right"] / (whole["right"] + whole[name]) for name in ("missed", "wrong"))
    simple_recall, simple_precision = (
        baseline["right"] / max(baseline["right"] + baseline[name], 1) for name in ("missed", "wrong")
    )
    print(f"all seeds: recall {recall:.3f}, precision {precision:.3f};", end=" ")
    print(f"z-scores: recall {simple_recall:.3f}, precision {simple_precision:.3f}")
    return 0 if min(recall, precision) >= _LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
