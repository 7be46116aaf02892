import asyncio
from typing import Any

import orjson
import pytest

from proxy.core import metadata_cache
from proxy.core.metadata_cache import MetadataCache
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RequestTimeout, ServiceUnavailable
from remoting.properties import MessageType
from remoting.topic_group_config import GroupConfig, TopicConfig
from tests.proxy.fakes import Clock, FakeBackend, settle
from tests.proxy.messages import route

pytestmark = pytest.mark.anyio


def group_of(name: str, **more: Any) -> RemotingCommand:
    return commands.success(body=orjson.dumps({"groupName": name, **more}))


def topic_of(name: str, kind: str = "FIFO") -> RemotingCommand:
    return commands.success(body=orjson.dumps({"topicName": name, "attributes": {"message.type": kind}}))


class Brokers:
    """Brokers' replies about topics and groups, by code; brokers in `failing` are unreachable."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = Clock() if clock is None else clock
        self.group: dict[str, Any] = {}
        self.kind = "FIFO"
        self.failing: set[str] = set()
        self.code = ResponseCode.SUCCESS
        self.backend = FakeBackend({"orders": route("orders", "broker-a", "broker-b")}, answer=self._answer)
        self.backend.names = ("broker-a", "broker-b")
        self.metadata = MetadataCache(lambda: self.backend, self.clock)
        self.changed: list[GroupConfig] = []
        self.metadata.on_group_changed(self.changed.append)

    def _answer(self, broker: str, command: RemotingCommand) -> RemotingCommand | Exception:
        if broker in self.failing:
            return RequestTimeout(f"{broker} did not answer")
        if self.code != ResponseCode.SUCCESS:
            return commands.response(self.code, remark="said so")
        if command.code == RequestCode.GET_TOPIC_CONFIG:
            return topic_of(command.fields["topic"], self.kind)
        return group_of(command.fields["group"], **self.group)

    @property
    def requests(self) -> list[tuple[str, int]]:
        return [(sent.broker, sent.code) for sent in self.backend.sent]


# Loading.


async def test_topic_configuration_comes_from_its_broker() -> None:
    brokers = Brokers()
    assert brokers.metadata.topics.cached("orders") is None
    assert await brokers.metadata.topics.get("orders") == TopicConfig("orders", MessageType.FIFO)
    assert brokers.metadata.topics.cached("orders") == TopicConfig("orders", MessageType.FIFO)
    assert len(brokers.requests) == 1
    assert brokers.backend.sent[0].fields == {"topic": "orders"}


async def test_group_configuration_comes_from_any_broker() -> None:
    brokers = Brokers()
    brokers.group = {"consumeMessageOrderly": True, "retryMaxTimes": 4}
    found = await brokers.metadata.groups.get("g")
    assert (found.name, found.orderly, found.max_attempts) == ("g", True, 5)
    assert brokers.backend.sent[0].fields == {"group": "g"}
    assert not brokers.changed


async def test_concurrent_callers_share_one_load() -> None:
    brokers = Brokers()
    await asyncio.gather(*(brokers.metadata.groups.get("g") for _ in range(10)))
    assert len(brokers.requests) == 1


async def test_next_broker_is_tried_after_a_failure() -> None:
    for failing in ("broker-a", "broker-b"):
        brokers = Brokers()
        brokers.failing = {failing}
        assert (await brokers.metadata.topics.get("orders")).message_type is MessageType.FIFO
        brokers.metadata.groups._entries.clear()


async def test_unknown_names_have_the_defaults_of_new_ones() -> None:
    brokers = Brokers()
    brokers.code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert await brokers.metadata.groups.get("g") == GroupConfig("g")
    brokers.code = ResponseCode.TOPIC_NOT_EXIST
    assert await brokers.metadata.topics.get("orders") == TopicConfig("orders", MessageType.UNSPECIFIED)
    # No broker is listed either.
    assert await brokers.metadata.topics.get("nowhere") == TopicConfig("nowhere", MessageType.UNSPECIFIED)


@pytest.mark.parametrize("code", [ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR])
async def test_defaults_apply_if_brokers_reject_the_request(code: ResponseCode) -> None:
    brokers = Brokers()
    brokers.code = code
    assert (await brokers.metadata.topics.get("orders")).message_type is MessageType.UNSPECIFIED
    assert await brokers.metadata.groups.get("g") == GroupConfig("g")


async def test_defaults_apply_without_any_broker() -> None:
    brokers = Brokers()
    brokers.backend.names = ()
    assert await brokers.metadata.groups.get("g") == GroupConfig("g")


async def test_defaults_apply_after_the_load_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_cache, "_LOAD_TIMEOUT", 0.01)
    brokers = Brokers()
    brokers.backend.pending = []
    assert await brokers.metadata.groups.get("g") == GroupConfig("g")
    # A late reply is used as well, and listeners are notified of the difference from the defaults.
    brokers.backend.pending[0].set_result(group_of("g", consumeMessageOrderly=True))
    await settle()
    assert brokers.metadata.groups.cached("g") == GroupConfig("g", orderly=True)
    assert brokers.changed == [GroupConfig("g", orderly=True)]


# Refreshing.


async def test_used_configuration_is_reloaded() -> None:
    brokers = Brokers()
    await brokers.metadata.groups.get("g")
    await brokers.metadata.topics.get("orders")
    await brokers.metadata.refresh()
    assert len(brokers.requests) == 2
    brokers.group = {"consumeMessageOrderly": True}
    brokers.kind = "NORMAL"
    brokers.clock.now += 11
    brokers.metadata.groups.cached("g")
    await brokers.metadata.refresh()
    assert brokers.changed == [GroupConfig("g", orderly=True)]
    assert brokers.metadata.topics.cached("orders") == TopicConfig("orders", MessageType.NORMAL)
    brokers.clock.now += 11
    await brokers.metadata.refresh()
    assert len(brokers.changed) == 1


async def test_unused_entry_is_dropped() -> None:
    brokers = Brokers()
    await brokers.metadata.groups.get("g")
    brokers.clock.now += 301
    await brokers.metadata.refresh()
    assert len(brokers.metadata.groups) == 0
    assert len(brokers.requests) == 1


async def test_loaded_configuration_stays_while_brokers_are_unavailable() -> None:
    brokers = Brokers()
    brokers.group = {"consumeMessageOrderly": True}
    await brokers.metadata.groups.get("g")
    brokers.failing = {"broker-a", "broker-b"}
    for _ in range(5):
        brokers.clock.now += 11
        assert brokers.metadata.groups.cached("g") == GroupConfig("g", orderly=True)
        await brokers.metadata.refresh()
    assert not brokers.changed


async def test_failed_load_is_not_retried_at_once() -> None:
    brokers = Brokers()
    brokers.failing = {"broker-a", "broker-b"}
    await brokers.metadata.groups.get("g")
    asked = len(brokers.requests)
    await brokers.metadata.groups.get("g")
    await brokers.metadata.refresh()
    assert len(brokers.requests) == asked
    brokers.failing = set()
    brokers.group = {"retryMaxTimes": 1}
    brokers.clock.now += 3
    await brokers.metadata.refresh()
    assert brokers.changed == [GroupConfig("g", retries=1)]


async def test_number_of_entries_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_cache, "_MAX_ENTRIES", 10)
    brokers = Brokers()
    for number in range(100):
        brokers.clock.now += 0.01
        await brokers.metadata.groups.get(f"g{number}")
    assert len(brokers.metadata.groups) <= 10
    assert brokers.metadata.groups.cached("g99") is not None


async def test_undecodable_configuration_is_ignored() -> None:
    brokers = Brokers()
    brokers.group = {"retryMaxTimes": "many"}
    assert await brokers.metadata.groups.get("g") == GroupConfig("g")
    brokers.backend.answer = lambda broker, command: ServiceUnavailable("gone")
    brokers.clock.now += 3
    await brokers.metadata.refresh()
    assert brokers.metadata.groups.cached("g") == GroupConfig("g")


async def test_unused_configuration_is_reloaded_at_growing_intervals() -> None:
    brokers = Brokers()
    await brokers.metadata.groups.get("made-up")

    async def loads(seconds: int, *, ask: bool) -> int:
        before = len(brokers.requests)
        for _ in range(seconds):
            brokers.clock.now += 1
            if ask:
                brokers.metadata.groups.cached("made-up")
            await brokers.metadata.refresh()
        return len(brokers.requests) - before

    assert await loads(100, ask=True) == 10
    assert await loads(290, ask=False) <= 6
    assert await loads(200, ask=True) >= 3
