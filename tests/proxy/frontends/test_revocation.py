"""Permissions that are revoked while a client is connected."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protos.apache.rocketmq.v2.definition_pb2 import FilterExpression
from proxy.core.principal import Method
from proxy.core.signing import SigningPolicy
from proxy.frontends.revocation import Revocation
from remoting.close_cause import CloseCause
from remoting.codes import RequestCode
from remoting.requests import REQUESTS
from remoting.signature import Credentials, sign
from tests.grpc_gateway.client_harness import ClientHarness
from tests.grpc_gateway.fakes import FakeCore
from tests.grpc_gateway.messages import producer_settings, route, transaction_check
from tests.proxy.auth.users import OWN_FILE, authority, write
from tests.proxy.fakes import FakeBackend, FakeChannel, settle, stage
from tests.proxy.messages import complete, heartbeat
from tests.proxy.messages import route as broker_route

pytestmark = pytest.mark.anyio

STRANGER = Credentials("stranger", "known-to-brokers-only")


@pytest.mark.parametrize("judges", [True, False])
async def test_activity_that_brokers_judge_is_not_ended(tmp_path: Path, judges: bool) -> None:
    """Gantry knows neither the user nor its permissions at the brokers."""
    users = authority(tmp_path)
    on = stage(FakeBackend({"orders": broker_route("orders", "broker-a")}, names=("broker-a",), pending=[]))
    on.core.signing = SigningPolicy(judges_signed=judges)
    channel = ClosableChannel()
    beat = heartbeat("c1", {"g": ["orders"]})
    pull = complete(REQUESTS[RequestCode.PULL_MESSAGE], bname="broker-a", suspendTimeoutMillis="15000")
    for command in (beat, pull):
        sign(command, STRANGER)
    channel.principal = users.of_command(beat, channel.peer)
    await on.ask(beat, channel)
    assert on.registry.consumer_ids("g") == {"c1"}
    poll = on.core.handle(channel, pull)
    harness = ClientHarness(FakeCore())
    frontend: Any = SimpleNamespace(clients=harness.clients, service=harness)
    channels: Any = (channel,)
    users.change_listeners.append(Revocation(on.core, users, lambda: channels, frontend).apply)
    users.changed()
    assert poll is not None
    assert (channel.closed, poll.done()) == (judges, judges)
    poll.cancel()


class ClosableChannel(FakeChannel):
    def close(self, cause: CloseCause) -> None:
        assert cause is CloseCause.REVOKED
        self.closed = True


async def test_a_client_gets_no_transaction_checks_of_a_topic_that_it_may_no_longer_send_to(tmp_path: Path) -> None:
    """It has sent to the topic, which its settings do not name."""
    users = authority(tmp_path)
    harness = ClientHarness(FakeCore(routes={"orders": route("orders"), "pay": route("pay")}))
    session = await harness.open_session(producer_settings("pay"))
    client = harness.client()
    [stream] = harness.telemetry.streams
    client.principal = stream.principal = users.principal("alice-1", Method.SIGNATURE)
    client.record_publication("orders")
    client.settings, settings = None, client.settings
    client.record_subscription("orders", FilterExpression(expression="*"))
    client.settings = settings
    await harness.heartbeat()
    await settle()
    producers = harness.client_lifecycle.producers
    producers.check_transaction(transaction_check())
    await settle()
    check = await session.read()
    assert check is not None
    assert check.WhichOneof("command") == "recover_orphaned_transaction_command"
    frontend: Any = SimpleNamespace(clients=harness.clients, service=harness)
    users.change_listeners.append(Revocation(stage().core, users, lambda: (), frontend).apply)
    write(tmp_path / "users.toml", OWN_FILE.replace("Topic:orders", "Topic:pay"))
    await users.refresh()
    await settle()
    assert (client.closed, client.topics, client.subscriptions) == (False, set(), {})
    producers.check_transaction(transaction_check())
    await settle()
    assert (producers.unanswered, session.received.qsize()) == (1, 0)
