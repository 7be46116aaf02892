"""Charts for the report and the notebooks: from pandas to matplotlib figures. Nothing is computed here."""

import io
from collections.abc import Sequence
from datetime import UTC
from typing import Any

import pandas as pd
from matplotlib import rc_context, rcParams
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

# Readable on white and on black, and distinct for colour-blind readers (after Okabe and Ito).
COLOURS = ("#2f7ebc", "#e8743b", "#1a9c6e", "#b05bb0", "#c9a227", "#56b4e9", "#8a6d5a", "#7a8794")
SEVERITIES = {"critical": "#d64545", "warning": "#d99a1c", "info": "#7a8794"}
_TEXT = "#6b7785"
# Maximum number of lines and bars of a chart.
_MAX = len(COLOURS)


def lines(
    frame: pd.DataFrame,
    value: str,
    by: str | None = None,
    unit: str = "",
    logarithmic: bool = False,
    weight: str | None = None,
) -> Figure:
    """Plot `value` over `time`, a line for each of the busiest `by`: those with most of `weight`, else of the value."""
    figure, axes = _blank()
    for (name, part), colour in zip(_series(frame, weight or value, by), COLOURS, strict=False):
        part = part.sort_values("time")
        # A line needs two points.
        marker = "o" if len(part) == 1 else None
        values = part[value].astype(float)
        axes.plot(
            _moments(part["time"]), values, color=colour, linewidth=1.4, marker=marker, markersize=4, label=str(name)
        )
    if logarithmic and (frame[value].astype(float) > 0).any():
        axes.set_yscale("log")
        axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
        axes.yaxis.set_minor_formatter(FuncFormatter(_shown))
    else:
        # A difference of one percent should not look like a cliff.
        axes.set_ylim(bottom=0)
    return _finish(figure, axes, unit, frame["time"], legend=by is not None)


def areas(frame: pd.DataFrame, value: str, by: str, unit: str = "") -> Figure:
    """Plot `value` over `time`, stacked by `by`."""
    figure, axes = _blank()
    wide = frame.pivot_table(index="time", columns=by, values=value, aggfunc="sum").fillna(0.0)
    ranked = list(wide.sum().sort_values(ascending=False).index)
    chosen = ranked if len(ranked) <= _MAX else ranked[: _MAX - 1]
    if len(ranked) > _MAX:
        # A stack shows the whole.
        wide["others"] = wide[ranked[_MAX - 1 :]].sum(axis=1)
        chosen.append("others")
    if chosen:
        labels = [str(name) for name in chosen]
        heights = [wide[name].astype(float) for name in chosen]
        axes.stackplot(
            _moments(wide.index.to_series()), heights, labels=labels, colors=COLOURS[: len(chosen)], alpha=0.85
        )
    return _finish(figure, axes, unit, frame["time"], legend=True)


def bars(frame: pd.DataFrame, name: str, value: str, unit: str = "", most: int = 12) -> Figure:
    """Plot `value` of each `name`, the greatest on top."""
    chosen = frame.sort_values(value, ascending=False).head(most).iloc[::-1]
    figure, axes = _blank(height=max(1.2, 0.3 * len(chosen) + 0.5))
    axes.barh([str(text)[:48] for text in chosen[name]], chosen[value].astype(float), color=COLOURS[0], height=0.7)
    axes.xaxis.set_major_formatter(FuncFormatter(_shown))
    axes.set_xlabel(unit, color=_TEXT)
    return figure


def timeline(findings: pd.DataFrame, load: pd.DataFrame) -> Figure:
    """Plot findings over time: a row for each kind, above the requests per period."""
    kinds = sorted(findings["kind"].unique())
    figure, axes = _blank(height=max(2.2, 0.34 * len(kinds) + 1.4))
    if len(load):
        ground = axes.twinx()
        total = load.groupby("time")["requests"].sum().astype(float)
        ground.fill_between(_moments(total.index.to_series()), total, color=_TEXT, alpha=0.18, linewidth=0)
        ground.set_ylim(0, max(float(total.max()), 1.0) * 1.05)
        ground.set_axis_off()
    for lane, kind in enumerate(reversed(kinds)):
        for row in findings[findings["kind"] == kind].itertuples():
            colour = SEVERITIES.get(str(row.severity), _TEXT)
            # Give an instant a visible width.
            axes.plot(
                _moments(pd.Series([row.start, row.end])),
                [lane, lane],
                color=colour,
                linewidth=7,
                solid_capstyle="round",
            )
    axes.set_yticks(range(len(kinds)), [kind.replace("_", " ") for kind in reversed(kinds)])
    axes.set_ylim(-0.7, len(kinds) - 0.3)
    _time_axis(axes, findings["start"])
    return figure


def svg(figure: Figure) -> str:
    """Return the figure as an SVG element; the same figure gives the same text."""
    out = io.StringIO()
    # Ids are derived from the content, so that pictures may share a page.
    with rc_context({"svg.hashsalt": "gantry"}):
        figure.savefig(out, format="svg", transparent=True, bbox_inches="tight", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def _series(frame: pd.DataFrame, value: str, by: str | None) -> Sequence[tuple[object, pd.DataFrame]]:
    if by is None:
        return [(value, frame)]
    totals = frame.groupby(by, dropna=False)[value].sum().sort_values(ascending=False)
    parts = dict(list(frame.groupby(by, dropna=False)))
    return [(name, parts[name]) for name in totals.index[:_MAX] if name in parts]


# Names of topics and clients are texts, not formulas.
rcParams["text.parse_math"] = False


def _blank(height: float = 2.6) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(9, height))
    axes = figure.add_subplot()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(_TEXT)
    axes.tick_params(which="both", colors=_TEXT, labelsize=8)
    axes.grid(axis="y", color=_TEXT, alpha=0.2)
    axes.set_axisbelow(True)
    return figure, axes


def _finish(figure: Figure, axes: Axes, unit: str, times: "pd.Series[Any]", legend: bool) -> Figure:
    axes.yaxis.set_major_formatter(FuncFormatter(_shown))
    axes.set_ylabel(unit, color=_TEXT, fontsize=8)
    _time_axis(axes, times)
    if legend and axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=8, ncols=4, loc="lower left", bbox_to_anchor=(0, 1), labelcolor=_TEXT)
    return figure


def _moments(times: "pd.Series[Any]") -> Any:
    """Return instants as matplotlib's numbers: an hour that clocks show twice has two places."""
    return date2num(pd.to_datetime(times, utc=True).dt.tz_localize(None).to_numpy())  # type: ignore[no-untyped-call]


def _time_axis(axes: Axes, times: "pd.Series[Any]") -> None:
    """Label the axis with the clock of the times' zone."""
    zone = times.dt.tz if isinstance(times.dtype, pd.DatetimeTZDtype) else UTC
    locator = AutoDateLocator(tz=zone)  # type: ignore[no-untyped-call]
    axes.xaxis_date(zone)
    axes.xaxis.set_major_locator(locator)
    formatter = ConciseDateFormatter(locator, tz=zone, show_offset=False)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(formatter)


def _shown(value: float, _: object = None) -> str:
    """Format a number on an axis: 12k, 3.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
