"""The maximum number of offsets: no group begins to consume another topic, all others continue."""

import pytest

from proxy.embedded.broker.settings import BrokerSettings
from remoting.codes import RequestCode, ResponseCode
from tests.cluster.client import pull_fields
from tests.proxy.embedded.broker_harness import BrokerHarness, texts

pytestmark = pytest.mark.anyio


@pytest.fixture
async def full() -> BrokerHarness:
    """A broker in which group g has four offsets in topic t, which are all that are admitted."""
    harness = BrokerHarness(BrokerSettings(max_offsets=4))
    harness.topic("t", queues=4)
    harness.topic("other", queues=4)
    assert harness.pop("t") == []
    assert len(harness.broker.offsets) == 4
    return harness


def _commit(harness: BrokerHarness, topic: str, group: str) -> int:
    fields = {"topic": topic, "consumerGroup": group, "queueId": 1, "commitOffset": 7}
    return harness.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code


async def test_a_new_group_of_a_topic_is_refused(full: BrokerHarness) -> None:
    for topic, group in (("t", "new"), ("other", "g")):
        refused = full.ask(RequestCode.POP_MESSAGE, full.pop_fields(topic, group))
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert "embedded.max_offsets" in (refused.remark or "")
    full.join({"new": ["t"]})
    assert _commit(full, "t", "new") == ResponseCode.SYSTEM_BUSY
    # A pull is served; only the offset that it commits on the side is not stored.
    full.send("t", b"m")
    fields = {**pull_fields("t", "new"), "sysFlag": 5, "commitOffset": 3}
    assert full.ask(RequestCode.PULL_MESSAGE, fields).code == ResponseCode.SUCCESS
    assert len(full.broker.offsets) == 4


async def test_a_group_continues_with_its_topics(full: BrokerHarness) -> None:
    full.send("t", b"m", queue=2)
    assert texts(full.pop("t", invisibleTime=1000)) == [b"m"]
    assert _commit(full, "t", "g") == ResponseCode.SUCCESS
    # Not acknowledged: its redelivery needs an offset in the retry topic.
    full.pass_time(2000)
    assert texts(full.pop("t")) == [b"m"]
    assert len(full.broker.offsets) == 5


@pytest.mark.parametrize("restarts", [False, True])
async def test_offsets_of_a_deleted_group_make_room(full: BrokerHarness, restarts: bool) -> None:
    if restarts:
        full.restart()
        assert len(full.broker.offsets) == 4
    full.get(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g", "cleanOffset": "true"})
    assert len(full.broker.offsets) == 0
    assert full.pop("other", "new") == []
    assert len(full.broker.offsets) == 4


async def test_offsets_up_to_which_groups_have_pulled_are_bounded(full: BrokerHarness) -> None:
    for number in range(10):
        full.ask(RequestCode.PULL_MESSAGE, pull_fields("t", f"g{number}"))
    assert len(full.broker.offsets._pulled) == 4


@pytest.mark.parametrize("dropped", ["group", "topic"])
async def test_offsets_that_were_pulled_count_and_are_freed(dropped: str) -> None:
    harness = BrokerHarness(BrokerSettings(max_offsets=4))
    harness.topic("t", queues=4)
    offsets = harness.broker.offsets
    harness.join({"g": ["t"]})
    for queue in range(4):
        offsets.set_pulled("t", "g", queue, 7)
    offsets.set_pulled("t", "new", 0, 7)
    assert offsets.pulled("t", "new", 0) == -1
    # One that has some continues.
    offsets.set_pulled("t", "g", 4, 7)
    assert offsets.pulled("t", "g", 4) == 7
    if dropped == "group":
        harness.get(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g", "cleanOffset": "true"})
    else:
        harness.get(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
    assert offsets.pulled("t", "g", 0) == -1
    offsets.set_pulled("t", "new", 0, 7)
    assert offsets.pulled("t", "new", 0) == 7
