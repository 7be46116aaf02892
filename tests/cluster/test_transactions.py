"""Transactions through several replicas, which are stateless."""

import pytest

from remoting import messages, properties
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from tests.cluster.client import Client, create_topic, unique
from tests.cluster.coverage import covers
from tests.cluster.half_messages import send_half
from tests.cluster.servers import Cluster, Gantry, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180, func_only=True)]

_COMMIT, _ROLLBACK = 8, 12


def _answer(producer: Client, check: RemotingCommand, how: int) -> None:
    """Send END_TRANSACTION like a Java producer after a check."""
    fields = {name: check.fields[name] for name in ("topic", "tranStateTableOffset", "commitLogOffset", "bname")}
    [half] = messages.decode_messages(check.body)
    fields |= {
        "producerGroup": properties.decode(half.properties)[properties.PRODUCER_GROUP],
        "commitOrRollback": str(how),
        "fromTransactionCheck": "true",
        "msgId": check.fields["msgId"],
        "transactionId": check.fields["transactionId"],
    }
    producer.send_oneway(RequestCode.END_TRANSACTION, fields)


@covers(RequestCode.END_TRANSACTION)
async def test_commit_and_rollback_take_effect_without_a_check(cluster: Cluster, gantry: Gantry) -> None:
    """Guards against a producer's commit that is dropped and reported as done (8.5)."""
    topic, group = await create_topic(cluster.broker, "tx"), unique("producers")
    async with Client(gantry.address) as producer:
        kept = await send_half(producer, topic, group, b"kept")
        dropped = await send_half(producer, topic, group, b"dropped")
        dropped.end(producer, _ROLLBACK)
        kept.end(producer, _COMMIT)
        # No producer of the group is registered at a broker, so that a check is impossible.
        [message] = await producer.pull(topic, unique("group"), wait=20_000)
        assert message.body == b"kept"
        assert await producer.pull(topic, unique("group"), offset=1, wait=500) == []


@covers(RequestCode.CHECK_TRANSACTION_STATE)
async def test_a_check_reaches_a_producer_of_the_group_behind_any_replica(
    cluster: Cluster, gantry: Gantry, replica: Gantry
) -> None:
    """Guards against checks that only the replica with the transaction in memory can handle (8.6)."""
    topic = await create_topic(cluster.broker, "check")
    near, far, other = unique("near"), unique("far"), unique("other")
    async with (
        Client(gantry.address) as first,
        Client(gantry.address) as second,
        Client(gantry.address) as stranger,
        Client(replica.address) as remote,
    ):
        for client, groups in ((first, [near]), (second, [near]), (stranger, [other]), (remote, [far])):
            await client.route(topic)
            await client.heartbeat(producers=groups)
        await send_half(first, topic, near, b"near")
        async with Client(gantry.address) as gone:
            await send_half(gone, topic, far, b"far")
        code = RequestCode.CHECK_TRANSACTION_STATE
        await eventually(lambda: first.pushed(code) or second.pushed(code), "a check of the near group")
        asked = first if first.pushed(code) else second
        check = await asked.push(code)
        [half] = messages.decode_messages(check.body)
        assert (half.body, half.topic, check.fields["topic"]) == (b"near", topic, topic)
        assert (check.fields["bname"], check.is_oneway) == ("broker-a", True)
        _answer(asked, check, _COMMIT)
        check = await remote.push(code)
        [half] = messages.decode_messages(check.body)
        assert half.body == b"far"
        _answer(remote, check, _COMMIT)
        found = [message.body for message in await first.pull_all(2, topic, unique("group"))]
        assert sorted(found) == [b"far", b"near"]
        assert not stranger.pushed(code)
        assert all(b"near" not in check.body for check in remote.pushed(code))
