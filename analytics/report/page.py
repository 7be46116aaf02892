"""The page: sections in HTML, everything in one file, nothing from elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from analytics.report import charts
from analytics.report.sections import ROWS, Section

_PAGE = Environment(loader=PackageLoader("analytics.report", "."), autoescape=True, trim_blocks=True).get_template(
    "page.html.j2"
)


@dataclass(frozen=True)
class Origin:
    """Where a report comes from: rows and files of the records, and the files that could not be read, with why."""

    title: str
    start: datetime
    end: datetime
    zone: str
    rows: int
    files: int
    skipped: Sequence[tuple[str, str]]


def render(origin: Origin, tiles: Sequence[tuple[str, str]], sections: Sequence[Section], made: datetime) -> str:
    """The page's text."""
    return _PAGE.render(
        title=origin.title,
        span=_span(origin),
        made=f"{made:%Y-%m-%d %H:%M} UTC",
        tiles=tiles,
        sections=[_shown(section) for section in sections],
        origin=f"{_number(origin.rows)} records in {_number(origin.files)} files; {len(origin.skipped)} could not be read.",
        skipped=origin.skipped,
    )


def _span(origin: Origin) -> str:
    start, end = (time.astimezone(ZoneInfo(origin.zone)) for time in (origin.start, origin.end))
    until = f"{end:%H:%M}" if start.date() == end.date() else f"{end:%A %d %B %Y, %H:%M}"
    return f"{start:%A %d %B %Y, %H:%M} to {until} ({origin.zone})"


def _shown(section: Section) -> dict[str, Any]:
    table = section.table
    return {
        "name": section.name,
        "title": section.title,
        "lead": section.lead,
        # Made here, of numbers and of texts that matplotlib escapes.
        "pictures": [Markup(charts.svg(figure)) for figure in section.figures],
        "head": [] if table is None else [str(name).replace("_", " ") for name in table.columns],
        "rows": [] if table is None else [_row(values) for values in table.head(ROWS).itertuples(index=False)],
        "more": 0 if table is None else max(len(table) - ROWS, 0),
    }


def _row(values: Sequence[Any]) -> list[tuple[str, str]]:
    return [_cell(value) for value in values]


def _cell(value: Any) -> tuple[str, str]:
    """A cell's kind and text."""
    if isinstance(value, list | tuple | np.ndarray):
        several = [str(item) for item in value]
        return "", ", ".join(several[:5]) + (f" and {len(several) - 5} more" if len(several) > 5 else "")
    if value is None or pd.isna(value):
        return "", "–"
    if isinstance(value, pd.Timestamp | datetime):
        return "time", f"{value:%d %b %H:%M}"
    if isinstance(value, bool | np.bool_):
        return "", "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return "number", _number(value)
    if isinstance(value, float | np.floating):
        return "number", _number(value) if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"
    text = str(value)
    return (text if text in charts.SEVERITIES else ""), text


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")
