"""Pictures and tables of notebooks."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure
from pyspark.sql import DataFrame

from analytics.notebooks.data import Opened
from analytics.report import charts
from analytics.report.sections import rows


class Picture:
    """A figure that Jupyter draws as the last expression of a cell."""

    def __init__(self, figure: Figure) -> None:
        self.svg = charts.svg(figure)

    def _repr_svg_(self) -> str:
        return self.svg


def table(opened: Opened, frame: DataFrame, order: Sequence[str] = (), most: int | None = None) -> pd.DataFrame:
    """Return a frame's rows with the zone's clock, the largest of `order` first."""
    shown = rows(frame.toArrow(), opened.zone)
    if order:
        shown = shown.sort_values(list(order), ascending=False)
    return shown if most is None else shown.head(most)
