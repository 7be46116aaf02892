"""sql, lineage and compare as commands; both engines give the same rows."""

import json
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from analytics.command import main
from analytics.jobs import engine
from tests.analytics import frames as kit
from tests.analytics.jobs.record_files import write

STATEMENT = (
    "SELECT hour, tenant, operation, requests, errors, messages FROM hourly"
    " JOIN (SELECT COUNT(*) AS rows_ FROM requests WHERE grp IS NOT NULL) ON rows_ > 0 ORDER BY hour, operation"
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    rows = [kit.send(kit.at(minute), weight=2.0) for minute in range(90)]
    rows += [kit.failed(kit.at(30)), kit.receive(kit.at(70), messages=5)]
    write(tmp_path, rows)
    return tmp_path


def test_sql_prints_rows(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(root), STATEMENT, "--json"]) == 0
    first, *_ = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["tenant"], first["operation"]) == ("shop", "send")
    assert main(["sql", str(root), "SELECT tenant, SUM(requests) AS n FROM tenants GROUP BY 1", "--csv"]) == 0
    assert capsys.readouterr().out == "tenant,n\nshop,182.0\n"


def test_sql_reads_files_that_are_all_of_a_former_version(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in root.rglob("*.parquet"):
        pq.write_table(pq.read_table(path, partitioning=None).drop_columns(["weight"]), path)
    assert (
        main(["sql", str(root), "SELECT SUM(requests) AS n, COUNT(weight) AS w FROM tenants, requests", "--csv"]) == 0
    )
    assert capsys.readouterr().out.splitlines()[1].endswith(",0")


def test_sql_reads_nothing_else_and_explains_mistakes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", str(root), "SELECT * FROM read_csv('/etc/passwd')"]) == 2
    assert "the statement does not run" in capsys.readouterr().err
    assert main(["sql", str(root), "SELECT nothing FROM requests"]) == 2
    assert "nothing" in capsys.readouterr().err


def test_both_engines_give_the_same_rows(spark: SparkSession, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> AbstractContextManager[SparkSession]:
        raise AssertionError("DuckDB reads plain files")

    local = engine.select(never, str(root), None, None, STATEMENT)

    def none(root: str, since: datetime | None, until: datetime | None) -> None:
        return None

    monkeypatch.setattr(engine, "plain_files", none)
    remote = engine.select(lambda: nullcontext(spark), str(root), None, None, STATEMENT)
    assert _plain(local) == _plain(remote)


def _plain(frame: pd.DataFrame) -> list[list[object]]:
    return [
        [str(value) if "UTC" not in str(value) else value for value in row]
        for row in frame.drop(columns="hour").to_numpy()
    ]


def test_lineage_and_compare_print_text(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lineage", str(root)]) == 0
    assert "shop%orders: " in capsys.readouterr().out
    day = "2026-10-19T{:02}:00Z"
    periods = [f"{day.format(hour)}/{day.format(hour + 1)}" for hour in (0, 1)]
    assert main(["compare", str(root), "--before", periods[0], "--after", periods[1]]) == 0
    assert capsys.readouterr().out.startswith("all: requests per hour 122 -> 61.5, 0.51 times (0.37 to 0.69), less;")
    assert main(["compare", str(root), "--before", periods[0]]) == 2
    assert "say either --before and --after, or --between" in capsys.readouterr().err
