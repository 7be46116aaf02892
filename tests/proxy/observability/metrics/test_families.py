"""Conventions of the metric families."""

import re

import pytest

from docs.generate.metrics import families


@pytest.mark.anyio
async def test_every_family_has_a_standard_name_a_help_text_and_bounded_labels() -> None:
    for name, family in (await families()).items():
        assert re.fullmatch(r"(gantry|rocketmq|process)_[a-z0-9_]+", name)
        assert family.help.endswith("."), name
        assert not {"client_id", "address", "key", "le"} & set(family.labels), name
