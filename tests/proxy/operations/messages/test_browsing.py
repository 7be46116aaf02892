"""Searches of stored messages that are refused; tests/proxy/admin/http/test_messages.py has the lists."""

from typing import Any, cast

import pytest

from proxy.operations.failures import FailureKind, OperationFailed
from proxy.operations.messages import browsing
from proxy.operations.messages.browsing import MessageQuery
from proxy.operations.services import AdminServices

pytestmark = pytest.mark.anyio

# The refusals come before the first use of the services.
_NONE = cast(AdminServices, None)


@pytest.mark.parametrize("searched", [{"key": "order-17"}, {"key": ""}, {"sql": "a = 1"}, {"sql": "a ="}])
async def test_a_search_of_contents_needs_the_permission_at_every_presentation(searched: dict[str, Any]) -> None:
    with pytest.raises(OperationFailed, match="needs the permission to read contents") as refused:
        await browsing.list_messages(_NONE, MessageQuery("orders", contents=False, limit=32, **searched))
    assert refused.value.failure.kind is FailureKind.FORBIDDEN
    # Faults of the query say nothing to a caller without the permission.
    with pytest.raises(OperationFailed, match="needs the permission"):
        await browsing.list_messages(_NONE, MessageQuery("orders", False, 32, "bad", "oldest", offset=1, **searched))


@pytest.mark.parametrize(
    ("values", "places"),
    [
        ({"tag": "A", "sql": "a = 1"}, ["query sql"]),
        ({"key": "a", "order": "oldest"}, ["query order"]),
        ({"offset": 3, "order": "newest"}, ["query order"]),
        ({"key": "a", "offset": 3}, ["query offset"]),
        ({"key": "a", "offset": 3, "order": "newest"}, ["query order", "query offset"]),
    ],
)
async def test_values_that_exclude_each_other(values: dict[str, Any], places: list[str]) -> None:
    with pytest.raises(OperationFailed, match="the request is not valid") as refused:
        await browsing.list_messages(_NONE, MessageQuery("orders", True, 32, **values))
    failure = refused.value.failure
    assert (failure.kind, [place for place, _ in failure.faults]) == (FailureKind.INVALID, places)


def test_the_oldest_message_comes_first_from_an_offset_and_where_it_is_wanted() -> None:
    for values, descending in (({}, True), ({"offset": 3}, False), ({"order": "oldest"}, False), ({"key": "a"}, True)):
        query = MessageQuery("orders", True, 32, **cast(dict[str, Any], values))
        query.check()
        assert query.page().order == ("stored", descending)
