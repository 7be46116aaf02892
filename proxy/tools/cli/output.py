"""Output: JSON lines for programs; tables and lines for users, in colour on a terminal without NO_COLOR."""

import sys
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import orjson
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

# Columns outside a terminal: nothing is cut or wrapped there.
_WIDE = 100_000


class _Console(Console):
    """A console whose closed pipe is left to the command, which ends with status 0."""

    def on_broken_pipe(self) -> None:
        raise


class Output:
    """Stdout, as JSON lines or as text."""

    def __init__(self, json: bool) -> None:
        self.json = json
        self._console = _Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False)

    def dump(self, value: Mapping[str, object]) -> None:
        """Write one JSON object as a line."""
        sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE))
        sys.stdout.buffer.flush()

    def done(self, kind: str, name: str, action: str) -> None:
        """Write a result such as `topic orders created`. kind: of the thing; action: a past participle."""
        if self.json:
            self.dump({kind.rpartition(" ")[2]: name, "done": action})
        else:
            self.line(f"{kind} {name} ", (action, "green"))

    def line(self, *parts: str | tuple[str, str]) -> None:
        """Write a line of texts, some with a style."""
        self._console.print(Text.assemble(*parts), soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]], figures: Collection[str] = ()) -> None:
        """Write a table; numbers are right-aligned, with thousands separators, fractions with two digits.

        figures: further columns that are right-aligned: texts of numbers, such as those with a unit.
        """
        numeric = {
            index
            for index, column in enumerate(columns)
            if column in figures or (rows and all(isinstance(row[index], int | float | None) for row in rows))
        }
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
        for index, column in enumerate(columns):
            table.add_column(column, justify="right" if index in numeric else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(_cell(cell)) for cell in row))
        self._console.print(table)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


def progress(what: str) -> Progress:
    """Return a progress bar on stderr, visible only on a terminal."""
    console = Console(stderr=True)
    return Progress(
        SpinnerColumn(),
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def warn(text: str) -> None:
    """Write a warning as a line on stderr."""
    sys.stderr.write(f"gantry: warning: {printable(text)}\n")


def printable(text: str) -> str:
    """Return text without control characters, which could steer a terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def clock(milliseconds: int) -> str:
    """Format a local time, with the date unless it is today; `-` for none."""
    if milliseconds <= 0:
        return "-"
    moment = datetime.fromtimestamp(milliseconds / 1000)
    shape = "%H:%M:%S.%f" if moment.date() == datetime.now().date() else "%Y-%m-%d %H:%M:%S.%f"
    return moment.strftime(shape)[:-3]
