"""The page of plots, the published tables and the count of strace, from made-up rows."""

import shutil
from itertools import product
from pathlib import Path
from typing import Any

from tests.benchmark import page, publish, system_calls
from tests.benchmark.official import LOADS
from tests.benchmark.operations import GRPC, REMOTING
from tests.benchmark.outcome import Row, Sample, as_json, findings
from tests.paths import ROOT


def rows(cpu: dict[str, float]) -> list[tuple[str, Row]]:
    return [
        (section.name, Row(operation, size, subject, Sample(cpu[subject], 1e6 / cpu[subject], 1.0, 2.0, 3.0, 99.0)))
        for section in (REMOTING, GRPC)
        for operation, size, subject in product(section.operations, (300, 4096), ("java", "gantry"))
    ]


def data(cpu: dict[str, float]) -> dict[str, Any]:
    found = [{"part": part, **as_json(row)} for part, row in rows(cpu)]
    return {
        "command": "python -m tests.benchmark.run",
        "cpus": 2,
        "gantry": "gantry 9.9 <compiled>",
        "rows": found,
        "failures": [],
        "missed": [],
    }


def test_the_page_shows_every_row_and_escapes_text() -> None:
    text = page.render(data({"java": 100.0, "gantry": 12.5}))
    assert "gantry 9.9 &lt;compiled&gt;" in text
    assert text.count("<tr>") == 2 + 2 * 2 * (len(REMOTING.operations) + len(GRPC.operations))
    assert text.count("<svg") == 4
    # Self-contained: nothing is fetched.
    assert "http" not in text
    assert "src=" not in text


def test_published_tables_have_the_figures_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "benchmarks.md", tmp_path / "docs")
    shutil.copy(ROOT / "README.md", tmp_path)
    publish.publish(data({"java": 100.0, "gantry": 12.5}), tmp_path)
    text, front = (tmp_path / "docs" / "benchmarks.md").read_text(), (tmp_path / "README.md").read_text()
    assert "| pull, 4 clients | 300 | **Gantry** | 12.5 (0.12 of Java's) | 80,000 | 1.00 | 2.00 | 3.00 | 99 |" in text
    assert "For sends this is 0.12 to 0.12 of the Java proxy's CPU time" in text
    assert "| gRPC FIFO send, 300 B, 4 clients, 32 in flight each | 12.5 | 100.0 | 0.12 | 80,000 | 10,000 |" in front
    assert "0.12 to 0.12 over remoting and 0.12 to 0.12 over gRPC" in front


def test_a_table_of_other_loads_has_a_line_for_each(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "benchmarks.md").write_text("<!-- bench-clients -->\n<!-- /bench-clients -->\n")
    found = data({"java": 100.0, "gantry": 12.5})
    found["rows"] = [
        {"part": "clients", **as_json(Row(LOADS[0].operation, 256, subject, Sample(cpu, rate, None, None, None, 99.0)))}
        for subject, cpu, rate in (("java", 100.0, 4000.0), ("gantry", 25.0, 5000.0))
    ]
    publish.publish(found, tmp_path)
    lines = (tmp_path / "docs" / "benchmarks.md").read_text().splitlines()
    assert "| java-remoting-send, 256 B, 1 x 64 | 25.0 | 100.0 | 0.25 | 5,000 | 4,000 |  |  |" in lines


def test_a_load_above_its_aim_is_missed() -> None:
    def missed(cpu: float) -> list[str]:
        found = findings([row for _, row in rows({"java": 100.0, "gantry": cpu})])
        return [text for one in found for text in one.failures()]

    assert missed(19.0) == []
    assert len(missed(30.0)) == 2 * len(REMOTING.operations)
    assert any("not more than Java" in text for text in missed(110.0))


def test_the_total_of_a_summary_is_its_number_of_calls() -> None:
    summary = """% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.001200           1      1200           write
 40.00    0.000800           1       800        12 read
------ ----------- ----------- --------- --------- ----------------
100.00    0.002000           1      2000        12 total
"""
    assert system_calls.total(summary) == 2000
    assert system_calls.total("") == 0
