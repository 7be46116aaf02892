import re

import pytest

from tests.paths import README
from tests.proxy.observability.metrics.table import families, table, written

# Histograms' series, as queries have them.
_PARTS = re.compile(r"_(?:bucket|count|sum)$")


@pytest.mark.anyio
async def test_the_readmes_table_is_what_there_is() -> None:
    found = await families()
    assert written() == table(found), "python -m tests.proxy.observability.metrics.table writes it anew"
    named = set(re.findall(r"\bgantry_[a-z0-9_]+", README.read_text()))
    assert {name for name in named if name not in found and _PARTS.sub("", name) not in found} == set()


@pytest.mark.anyio
async def test_names_and_texts() -> None:
    for name, family in (await families()).items():
        assert re.fullmatch(r"(gantry|rocketmq|process)_[a-z0-9_]+", name)
        assert family.text.endswith("."), name
        assert not {"client_id", "address", "key", "le"} & set(family.labels), name
