"""Figures of measurements on the pages: each has its command, and agrees with the tables and bounds it is from."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmark.instructions import BOUNDS, OPERATIONS
from tests.paths import ROOT

BENCHMARKS = ROOT / "docs" / "benchmarks.md"
# A row of one load: name, bytes, proxy, CPU time, messages per second.
_ROW = re.compile(r"\| (?P<load>[^|]+) \| (?P<bytes>\d+) \| (?P<proxy>[^|]+) \| (?P<cpu>[^|]*) \| (?P<rate>[\d,]+) \|")
_CPU = re.compile(r"([\d.]+)(?: \(([\d.]+) of Java's\))?")
_SHORT = {300: "300 B", 4096: "4 KiB"}
# Units of measurements of speed.
_MEASURED = re.compile(r"\d µs|CPU µs|messages/s|kB each|sends per second")
_COMMAND = re.compile(r"`make [a-z-]+`|`python -m [\w.]+|`--(?:rounds|only) |gantry bench")


class Row:
    """One row of the benchmarks: CPU µs per message, its ratio to the Java proxy's, messages per second."""

    def __init__(self, match: re.Match[str]) -> None:
        cpu = _CPU.match(match["cpu"])
        self.load, self.bytes, self.proxy = match["load"], int(match["bytes"]), match["proxy"].strip("* ")
        self.cpu = float(cpu[1]) if cpu else None
        self.ratio = float(cpu[2]) if cpu and cpu[2] else None
        self.rate = match["rate"]


def rows(section: str) -> dict[tuple[str, int, str], Row]:
    """Return the rows of a section of the benchmarks, by load, bytes and proxy."""
    text = re.split(r"^## ", BENCHMARKS.read_text(), flags=re.MULTILINE)
    lines = next(part for part in text if part.startswith(section)).splitlines()
    found = [Row(match) for line in lines if (match := _ROW.match(line))]
    assert found
    return {(row.load, row.bytes, row.proxy): row for row in found}


@pytest.mark.parametrize("section", ["Remoting", "gRPC"])
def test_ratios_are_quotients_of_the_measured_times(section: str) -> None:
    table = rows(section)
    for (load, size, proxy), row in table.items():
        if proxy == "Gantry" and row.ratio is not None:
            java = table[load, size, "Java proxy"].cpu
            assert java is not None
            assert row.cpu is not None
            # The times are rounded to a tenth.
            assert row.ratio == pytest.approx(row.cpu / java, abs=0.015), (load, size)


def test_sentences_about_grpc_agree_with_the_table() -> None:
    table = rows("gRPC")
    ratios = {key: row.ratio for key, row in table.items() if row.ratio is not None}
    sends = [ratio for (load, _, _), ratio in ratios.items() if "send, " in load and "at once" not in load]
    text = BENCHMARKS.read_text()
    assert f"For sends this is {min(sends):.2f} to {max(sends):.2f} of the Java proxy's CPU time" in text
    assert f"for all loads {min(ratios.values()):.2f} to {max(ratios.values()):.2f}" in text
    assert len(ratios) >= 6


def _readme_rows() -> Iterator[tuple[str, list[str]]]:
    lines = (ROOT / "README.md").read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| load | Gantry"))
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            return
        name, *figures = (cell.strip() for cell in line.strip("|").split("|"))
        yield name, figures


def test_the_readme_has_figures_of_the_benchmarks() -> None:
    known = {
        f"{protocol} {load}".replace(",", "") + f" {_SHORT[size]}": (row, table[load, size, "Java proxy"])
        for protocol, table in (("remoting", rows("Remoting")), ("gRPC", rows("gRPC")))
        for (load, size, proxy), row in table.items()
        if proxy == "Gantry" and (load, size, "Java proxy") in table
    }
    by_words = {frozenset(name.split()): pair for name, pair in known.items()}
    found = dict(_readme_rows())
    assert len(found) >= 9
    for name, figures in found.items():
        gantry, java = by_words[frozenset(name.replace(",", "").split())]
        assert figures == [f"{gantry.cpu}", f"{java.cpu}", f"{gantry.ratio:.2f}", gantry.rate, java.rate], name


def test_counted_instructions_are_the_bounds() -> None:
    bounds = json.loads(BOUNDS.read_text())
    table = BENCHMARKS.read_text().partition("<!-- instructions -->\n")[2].partition("<!-- /instructions -->")[0]
    expected = [
        f"| {name} | {pure:,} | {compiled:,} | {compiled / pure:.2f} |"
        for name in OPERATIONS
        for pure, compiled in [(bounds["pure"][name], bounds["compiled"][name])]
    ]
    assert table.splitlines()[2:] == expected


def test_every_section_with_measurements_names_its_command() -> None:
    without = [
        f"{path.name}: {section.splitlines()[0]}"
        for path in _pages()
        for section in re.split(r"^## ", path.read_text(), flags=re.MULTILINE)
        if _MEASURED.search(section) and not _COMMAND.search(section)
    ]
    assert without == []


def _pages() -> list[Path]:
    # Generated pages and decisions about earlier versions make no claims.
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return [path for path in pages if path.parent.name not in ("reference", "decisions")]
