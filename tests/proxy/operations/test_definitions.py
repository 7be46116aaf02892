"""Topics and consumer groups that only some brokers of a cluster have."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import anyio
import orjson
import pytest

from proxy.app import App
from proxy.operations import definitions, topics
from proxy.operations.definitions import GroupOrder, TopicChange, TopicOrder, TopicUpdate
from proxy.operations.failures import OperationFailed
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.names import SELF_TEST_TOPIC
from remoting.topic_group_config import NEW_GROUP
from tests.proxy.backends.cluster.servers import Cluster, running
from tests.proxy.replica import serving
from tests.proxy.tools.cli.shell import Done, Shell

pytestmark = pytest.mark.anyio

_ORDERS = {
    "topicName": "orders",
    "readQueueNums": 4,
    "writeQueueNums": 4,
    "perm": 6,
    "order": True,
    "attributes": {"message.type": "FIFO", "cleanup.policy": "COMPACTION"},
}
_BILLING = {
    **NEW_GROUP,
    "groupName": "billing",
    "retryMaxTimes": 3,
    "consumeTimeoutMinute": 45,
    "attributes": {"lite.sub.client.quota": "7"},
}


@dataclass
class _Broker:
    """The tables of a broker."""

    topics: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, Any] = field(default_factory=dict)
    # Response about the members of a group.
    members: int = ResponseCode.CONSUMER_NOT_ONLINE

    def answer(self, command: RemotingCommand) -> RemotingCommand:
        match command.code:
            case RequestCode.GET_ALL_TOPIC_CONFIG:
                return commands.success(body=orjson.dumps({"topicConfigTable": self.topics}))
            case RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
                return commands.success(body=orjson.dumps({"subscriptionGroupTable": self.groups}))
            case RequestCode.UPDATE_AND_CREATE_TOPIC:
                fields = command.fields
                self.topics[fields["topic"]] = {
                    "topicName": fields["topic"],
                    **{key: int(fields[key]) for key in ("readQueueNums", "writeQueueNums", "perm")},
                    "order": fields["order"] == "true",
                    "attributes": dict(item[1:].split("=") for item in fields["attributes"].split(",")),
                }
            case RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP:
                group = orjson.loads(command.body)
                attributes = {key.removeprefix("+"): value for key, value in group.pop("attributes", {}).items()}
                self.groups[group["groupName"]] = {**group, "attributes": attributes}
            case RequestCode.GET_CONSUMER_CONNECTION_LIST:
                return commands.response(self.members, remark="about members")
            case RequestCode.DELETE_SUBSCRIPTIONGROUP:
                del self.groups[command.fields["groupName"]]
            case _:
                return commands.success(body=b"{}")
        return commands.success()


@dataclass
class _Stage:
    app: App
    cluster: Cluster
    first: _Broker
    second: _Broker

    async def run(self, *words: object) -> Done:
        """Run a command that must succeed, perhaps with a warning."""
        done = await anyio.to_thread.run_sync(lambda: Shell(str(self.app.addresses[0])).run(*words))
        assert done.status == 0, done.err
        return done

    async def refused(self, *words: object) -> str:
        """Run a command that must fail; return its error."""
        return await anyio.to_thread.run_sync(lambda: Shell(str(self.app.addresses[0])).refused(*words))


@pytest.fixture
async def stage() -> AsyncIterator[_Stage]:
    """A cluster of two brokers, of which the first has a topic and a group."""
    first, second = _Broker({"orders": _ORDERS}, {"billing": _BILLING}), _Broker()
    async with running() as cluster:
        await cluster.broker("broker-a", answer=first.answer)
        await cluster.broker("broker-b", answer=second.answer)
        cluster.topics |= {"orders": ["broker-a"], SELF_TEST_TOPIC: ["broker-a", "broker-b"]}
        async with serving(cluster, tools="all") as app:
            yield _Stage(app, cluster, first, second)


async def test_api_adds_a_topic_at_the_brokers_without_it(stage: _Stage) -> None:
    services = stage.app.admin_services
    assert (await topics.get_topic(services, "orders")).missing == ["broker-b"]
    with pytest.raises(OperationFailed, match=r"exists at broker-a with another definition \(type FIFO, 4 read and 4"):
        await definitions.create_topic(services, TopicOrder(name="orders"))
    assert stage.second.topics == {}
    order = TopicOrder(name="orders", kind="FIFO", queues=4)
    created = await definitions.create_topic(services, order)
    assert (created.brokers, created.missing) == (["broker-a", "broker-b"], [])
    assert stage.second.topics == {"orders": _ORDERS}
    with pytest.raises(OperationFailed, match=r"^the topic orders exists; PATCH changes it$"):
        await definitions.create_topic(services, order)


async def test_change_of_a_topic_leaves_its_order_and_the_type_at_each_broker(stage: _Stage) -> None:
    stage.second.topics["orders"] = {**_ORDERS, "order": False, "attributes": {"message.type": "NORMAL"}}
    stage.cluster.topics["orders"] = ["broker-a", "broker-b"]
    change = TopicChange(topic="orders", changes=TopicUpdate(queues=6))
    await definitions.update_topic(stage.app.admin_services, change)
    await stage.run("topics", "update", "orders", "--queues", 8)
    for broker, order, kind in ((stage.first, True, "FIFO"), (stage.second, False, "NORMAL")):
        stored = broker.topics["orders"]
        assert (stored["order"], stored["attributes"]["message.type"]) == (order, kind)
        assert (stored["readQueueNums"], stored["writeQueueNums"], stored["perm"]) == (8, 8, 6)


async def test_group_is_deleted_only_if_brokers_know_of_no_members(stage: _Stage) -> None:
    services = stage.app.admin_services
    stage.first.members = stage.second.members = ResponseCode.SYSTEM_ERROR
    with pytest.raises(
        OperationFailed, match="not known whether the consumer group billing has members: about members"
    ):
        await definitions.delete_group(services, "billing")
    assert stage.first.groups
    stage.first.members = stage.second.members = ResponseCode.CONSUMER_NOT_ONLINE
    await definitions.delete_group(services, "billing")
    assert not stage.first.groups


async def test_api_adds_a_group_at_the_brokers_without_it(stage: _Stage) -> None:
    services = stage.app.admin_services
    found = await definitions.get_group(services, "billing")
    assert (found.brokers, found.missing) == (["broker-a"], ["broker-b"])
    with pytest.raises(OperationFailed, match=r"at broker-a with another definition \(.*retryMaxTimes 3"):
        await definitions.create_group(services, GroupOrder(name="billing"))
    assert stage.second.groups == {}
    created = await definitions.create_group(services, GroupOrder(name="billing", retries=3))
    assert (created.brokers, created.missing) == (["broker-a", "broker-b"], [])
    assert stage.second.groups == {"billing": _BILLING}


async def test_command_line_shows_and_adds_a_missing_topic(stage: _Stage) -> None:
    shown = await stage.run("topics", "show", "orders", "--json")
    assert shown.object["missing"] == ["broker-b"]
    shown = await stage.run("topics", "show", "orders")
    assert "topic orders is missing at broker-b; `gantry topics create` with the same definition" in shown.err
    refusal = await stage.refused("topics", "create", "orders")
    assert "topic orders exists at broker-a with another definition" in refusal
    await stage.run("topics", "create", "orders", "--type", "FIFO", "--queues", 4)
    assert stage.second.topics == {"orders": _ORDERS}
    assert "missing" not in (await stage.run("topics", "show", "orders")).err
    refusal = await stage.refused("topics", "create", "orders", "--type", "FIFO", "--queues", 4)
    assert refusal == "topic orders exists; `gantry topics update` changes it"


async def test_command_line_shows_and_adds_a_missing_group(stage: _Stage) -> None:
    shown = await stage.run("groups", "show", "billing", "--json")
    assert shown.object["missing"] == ["broker-b"]
    assert "consumer group billing is missing at broker-b" in (await stage.run("groups", "show", "billing")).err
    refusal = await stage.refused("groups", "create", "billing")
    assert "consumer group billing exists at broker-a with another definition" in refusal
    await stage.run("groups", "create", "billing", "--retries", 3)
    assert stage.second.groups == {"billing": _BILLING}
    refusal = await stage.refused("groups", "create", "billing", "--retries", 3)
    assert refusal == "consumer group billing exists; `gantry groups update` changes it"
