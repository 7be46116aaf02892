"""A full disk changes nothing of what clients see."""

import pytest

from remoting.codes import RequestCode, ResponseCode
from tests.proxy.embedded.broker_harness import BrokerHarness, texts

pytestmark = pytest.mark.anyio


async def test_a_full_disk_delivers_no_message(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.send("t", b"x")
    harness.pop("t", "other")
    harness.broker.groups.find("g")
    harness.store.full = True
    reply = harness.ask(RequestCode.POP_MESSAGE, harness.pop_fields("t"))
    assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
    harness.pass_time(10_000)
    harness.store.full = False
    assert texts(harness.pop("t")) == [b"x"]
    harness.pass_time(2000)
    assert texts(harness.pop("t", "other")) == [b"x"]


async def test_a_full_disk_changes_no_invisible_duration(harness: BrokerHarness) -> None:
    """The store fails at the end of the transaction, as when its log cannot be extended."""
    harness.topic("t")
    harness.send("t", b"x")
    [popped] = harness.pop("t")
    harness.store.full = True
    fields = harness.handle_fields("t", popped, invisibleTime=20_000)
    assert harness.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert harness.ack("t", popped).code == ResponseCode.SERVICE_NOT_AVAILABLE
    harness.store.full = False
    harness.pass_time(10_000)
    assert texts(harness.pop("t")) == [b"x"]


async def test_a_full_disk_deletes_no_topic_and_no_group(harness: BrokerHarness) -> None:
    harness.topic("t")
    harness.get(200, {}, b'{"groupName":"g"}')
    harness.send("t", b"x")
    harness.pop("t")
    harness.store.full = True
    for code, fields in ((215, {"topic": "t"}), (207, {"groupName": "g", "cleanOffset": "true"})):
        assert harness.ask(code, fields).code == ResponseCode.SERVICE_NOT_AVAILABLE
    harness.store.full = False
    assert harness.broker.offsets.get("t", "g", 0) == 1
    assert "g" in [group.name for group in harness.broker.groups]
    harness.pass_time(10_000)
    assert texts(harness.pop("t")) == [b"x"]
