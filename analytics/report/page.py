"""The page: sections in HTML, in one self-contained file."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from analytics.incidents.incident import Incident
from analytics.report import charts
from analytics.report.explorer import DIMENSIONS, embedded
from analytics.report.first_screen import first_screen
from analytics.report.sections import ROWS, Section, clock
from analytics.report.sentences import count

# A word with a hyphen, which browsers would break there, unless it is wider than a card on a phone.
_HYPHENED = re.compile(r"(?<!\S)(?=\S*-)\S{1,30}(?!\S)")


def unbroken(sentence: str) -> Markup:
    """Return a sentence as HTML in which names such as broker-a are not broken at their hyphens."""
    parts, done = Markup(), 0
    for match in _HYPHENED.finditer(sentence):
        parts += Markup("{}<span class=name>{}</span>").format(sentence[done : match.start()], match[0])
        done = match.end()
    return parts + sentence[done:]


_TEMPLATES = Environment(loader=PackageLoader("analytics.report", "."), autoescape=True, trim_blocks=True)
_TEMPLATES.filters["unbroken"] = unbroken
_PAGE = _TEMPLATES.get_template("page.html.j2")


@dataclass(frozen=True)
class Origin:
    """Source of a report: rows and files of the records, and the unreadable files with reasons."""

    title: str
    start: datetime
    end: datetime
    zone: str
    rows: int
    files: int
    skipped: Sequence[tuple[str, str]]


def render(
    origin: Origin,
    tiles: Sequence[tuple[str, str]],
    sections: Sequence[Section],
    made: datetime,
    incidents: Sequence[Incident] = (),
    data: Mapping[str, Any] | None = None,
) -> str:
    """Return the page's HTML. data: of the drill-down (explorer.py); None: the page has none."""
    return _PAGE.render(
        title=origin.title,
        span=_span(origin),
        made=f"{made:%Y-%m-%d %H:%M} UTC",
        verdict=first_screen(incidents, origin.zone),
        tiles=tiles,
        sections=[_shown(section) for section in sections],
        origin=f"{count(origin.rows)} records in {count(origin.files)} files; {len(origin.skipped)} could not be read.",
        skipped=origin.skipped,
        dimensions=DIMENSIONS,
        orphans=data["lineage"]["orphans"] if data else {},
        data=Markup(embedded(data)) if data else None,  # noqa: S704  # without <, > and &
        styles=_asset("explorer.css") + _asset("vendor/uPlot.min.css"),
        library=_asset("vendor/uPlot.iife.min.js"),
        script=_asset("explorer.js"),
    )


def _asset(name: str) -> Markup:
    """Return a file of this package for the page."""
    return Markup(files("analytics.report").joinpath(name).read_text(encoding="utf-8"))  # noqa: S704  # the file is ours


def _span(origin: Origin) -> str:
    start, end = (time.astimezone(ZoneInfo(origin.zone)) for time in (origin.start, origin.end))
    until = clock(end) if start.date() == end.date() else f"{end:%A %d %B %Y}, {clock(end)}"
    return f"{start:%A %d %B %Y}, {clock(start)} to {until} ({origin.zone})"


def _shown(section: Section) -> dict[str, Any]:
    table = pd.DataFrame() if section.table is None else section.table
    names = list(table.columns)
    return {
        "name": section.name,
        "title": section.title,
        "lead": section.lead,
        # Built here from numbers and from texts that matplotlib escapes.
        "pictures": [Markup(charts.svg(figure)) for figure in section.figures],  # noqa: S704  # the SVG is ours
        "head": [_heading(table, name) for name in names],
        "rows": [_row(names, row) for row in table.head(ROWS).itertuples(index=False)],
        "more": max(len(table) - ROWS, 0),
    }


def _heading(table: pd.DataFrame, name: str) -> tuple[str, str]:
    kind = table[name].infer_objects().dtype
    numeric = pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_bool_dtype(kind)
    return "number" if numeric else "", name.replace("_", " ")


def _row(names: Sequence[str], values: Sequence[Any]) -> list[tuple[str, str]]:
    return [_cell(name, value) for name, value in zip(names, values, strict=True)]


def _cell(name: str, value: Any) -> tuple[str, str]:
    """Return a cell's kind and text."""
    if isinstance(value, list | tuple | np.ndarray):
        several = [str(item) for item in value]
        return "", ", ".join(several[:5]) + (f" and {len(several) - 5} more" if len(several) > 5 else "")
    if value is None or pd.isna(value):
        return "", "\N{EN DASH}"
    if isinstance(value, pd.Timestamp | datetime):
        return "time", f"{value:%d %b} {clock(value)}"
    if isinstance(value, bool | np.bool_):
        return "", "yes" if value else "no"
    if name.endswith(("share", "_rate")):
        return "number", f"{100 * value:.3g} %"
    if name.startswith("bytes_") and not name.endswith("_s"):
        return "number", _size(value)
    if isinstance(value, int | float | np.integer | np.floating):
        number = float(value)
        return "number", count(number) if abs(number) >= 1000 or number.is_integer() else f"{number:.3g}"
    text = str(value)
    return (text if text in charts.SEVERITIES else ""), text


def _size(value: float) -> str:
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} B"
