import asyncio

import pytest

from proxy.core.client_registry import Groups
from proxy.core.signing import Signer
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import NotPermitted
from remoting.requests import REQUESTS
from remoting.signature import Credentials, SecretKey, sign, verify
from tests.proxy.backends.cluster.cluster_requests import SEND, ask, by
from tests.proxy.backends.cluster.servers import Cluster
from tests.proxy.fakes import FakeChannel, settle
from tests.proxy.messages import complete, heartbeat

pytestmark = pytest.mark.anyio

OWN, ALICE = Credentials("gantry", "own-secret"), Credentials("alice", "alice-secret")


def _signer(command: RemotingCommand) -> str | None:
    for credentials in (OWN, ALICE):
        if verify(command, credentials.key):
            return credentials.access_key
    return None


async def test_all_own_requests_are_signed(cluster: Cluster) -> None:
    broker = await cluster.broker()
    name_server = await cluster.name_server()
    cluster.topics["orders"] = ["broker-a"]
    backend = await cluster.backend(name_server.address, signer=Signer(OWN))
    await backend.route("orders")
    await backend.forget_topic("orders")
    await by(ask(backend, SEND))
    spec = REQUESTS[RequestCode.UPDATE_CONSUMER_OFFSET]
    backend.oneway("broker-a", spec, complete(spec), None)
    client = FakeChannel()
    client.session.client_id = "c1"
    client.session.membership.heartbeat = heartbeat("c1", {"g": []})
    sign(client.session.membership.heartbeat, ALICE)
    groups = Groups(consumers=frozenset("g"))
    await backend.register(client, groups, ["broker-a"])
    await backend.unregister(client, groups)
    await broker.until(lambda server: len(server.received) == 5)
    assert {_signer(command) for command in name_server.received} == {"gantry"}
    assert {(command.code, _signer(command)) for command in broker.received} == {
        # The first one, by which the broker checks the credentials, and the client's.
        (RequestCode.HEART_BEAT, "gantry"),
        (RequestCode.HEART_BEAT, "alice"),
        (SEND, "gantry"),
        (RequestCode.UPDATE_CONSUMER_OFFSET, "gantry"),
        (RequestCode.UNREGISTER_CLIENT, "gantry"),
    }


async def test_without_credentials_nothing_is_signed(cluster: Cluster) -> None:
    broker = await cluster.broker()
    backend = await cluster.backend()
    await by(ask(backend, SEND))
    assert [command.code for command in broker.received] == [SEND]
    assert "Signature" not in broker.received[0].fields


async def test_broker_that_denies_gantrys_requests_is_reported(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(command: RemotingCommand) -> RemotingCommand:
        if verify(command, SecretKey("the changed secret")):
            return commands.success()
        return commands.response(ResponseCode.NO_PERMISSION, remark="check signature failed.")

    broker = await cluster.broker(answer=answer)
    backend = await cluster.backend(signer=Signer(OWN))
    async with asyncio.timeout(30):
        while not backend.denied_by:
            await settle()
    assert backend.denied_by == {broker.address}
    assert "cluster.access_key" in caplog.text
    assert "own-secret" not in caplog.text


@pytest.mark.parametrize(("others", "denied"), [("deny", True), ("accept", False)])
async def test_registration_is_denied_if_no_broker_accepts_it(cluster: Cluster, others: str, denied: bool) -> None:
    def deny(_: RemotingCommand) -> RemotingCommand:
        return commands.response(ResponseCode.NO_PERMISSION, remark="no matched policies.")

    await cluster.broker("broker-a", answer=deny)
    await cluster.broker("broker-b", answer=deny if others == "deny" else None)
    backend = await cluster.backend()
    client = FakeChannel()
    client.session.membership.heartbeat = heartbeat("c1", {"g": []})
    register = backend.register(client, Groups(consumers=frozenset("g")), ["broker-a", "broker-b"])
    if denied:
        with pytest.raises(NotPermitted, match="no matched policies"):
            await register
    else:
        assert await register is client.session.membership.heartbeat


async def test_no_heartbeat_is_accepted_without_an_answer_or_if_a_later_one_replaces_it(cluster: Cluster) -> None:
    client, groups = FakeChannel(), Groups(consumers=frozenset("g"))

    def replace(_: RemotingCommand) -> RemotingCommand:
        client.session.membership.heartbeat = heartbeat("c1", {"h": []})
        return commands.success()

    await cluster.broker("broker-a", answer=replace)
    backend = await cluster.backend()
    client.session.membership.heartbeat = heartbeat("c1", {"g": []})
    assert await backend.register(client, groups, ["broker-a"]) is None
    assert await backend.register(client, groups, ["unknown"]) is None
