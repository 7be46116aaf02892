"""The descriptions in deploy/gantry.toml, from the settings' models.

In the file a line `## …` is a generated description, and `# key = value` a setting at its default, or with an example
value if it has no default. Keys, values and other comments are written by hand.
"""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from docs.generate.configuration import settings
from docs.generate.markdown import sentence

PATH = Path(__file__).resolve().parents[2] / "deploy" / "gantry.toml"
_PREFIX = "## "
_WIDTH = 120
_TABLE = re.compile(r"(?:# )?\[{1,2}([\w.]+)\]{1,2}$")
_SETTING = re.compile(r"(?:# )?(\w+) = ")


def page() -> str:
    """Return the text of the file with current descriptions."""
    return "\n".join(_lines(PATH.read_text().splitlines())) + "\n"


def _lines(lines: list[str]) -> Iterator[str]:
    descriptions = {item.key: item.description for item in settings()}
    table = ""
    for line in lines:
        header, setting = _TABLE.match(line), _SETTING.match(line)
        if line.startswith(_PREFIX):
            continue
        if header:
            table = f"{header[1]}."
        elif setting:
            text = sentence(descriptions[table + setting[1]])
            yield from textwrap.wrap(text, _WIDTH, initial_indent=_PREFIX, subsequent_indent=_PREFIX)
        yield line
