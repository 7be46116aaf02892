"""The traffic records' schema as a page."""

from docs.generate import markdown
from docs.generate.markdown import code, sentence, table
from proxy.observability.records.schema import TABLES, VERSION, Table

_INTRODUCTION = f"""
The columns of [traffic records](../traffic-records.md), version {VERSION} of the schema. Types are those of Spark:
timestamp (microseconds, UTC), short (16 bits), int (32), long (64), double, boolean, string. Every file has the version
in its metadata (`gantry.schema`), every row in the column `schema`. A newer version only adds columns at the end; they
are null in older files.
"""


def page() -> str:
    """Return the page."""
    return markdown.page("Traffic record schema", _INTRODUCTION, *map(_section, TABLES))


def _section(found: Table) -> str:
    rows = [
        (code(column.name), column.kind.value, "yes" if column.nullable else "never", sentence(column.description))
        for column in found.columns
    ]
    head = ("column", "type", "may be null", "description")
    return f"## `{found.name}`\n\n{sentence(found.description)}\n\n{table(head, rows)}"
