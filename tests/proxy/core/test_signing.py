import asyncio
from pathlib import Path
from typing import Any

import pytest

from proxy.core.membership import leave
from proxy.core.signing import Signer, SigningPolicy, signing_policy
from proxy.settings.cluster import ClientSignatures, ClusterSettings
from proxy.settings.embedded import EmbeddedSettings
from proxy.settings.model import Settings
from remoting import command as commands
from remoting import messages, properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import InvalidRequest, NotPermitted, ServiceUnavailable
from remoting.messages import BatchMessage
from remoting.requests import REQUESTS
from remoting.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, Credentials, sign, verify
from tests.proxy.core.handlers.locks import LOCK, QUEUES, UNLOCK, ask, grants
from tests.proxy.fakes import FakeBackend, FakeChannel, Stage, settle, stage
from tests.proxy.messages import complete, heartbeat, request, route

pytestmark = pytest.mark.anyio

OWN = Credentials("gantry", "own-secret")
ALICE = Credentials("alice", "alice-secret", "token")
BORN = properties.BORN_HOST


def signed(command: RemotingCommand) -> RemotingCommand:
    sign(command, ALICE)
    return command


def grpc_channel() -> FakeChannel:
    return FakeChannel(protocol="grpc", signs=False)


@pytest.mark.parametrize(
    ("channel", "command", "options", "signer"),
    [
        (None, request(38), {}, OWN),
        (grpc_channel(), request(38), {}, OWN),
        (FakeChannel(), signed(request(38)), {}, ALICE),
        (FakeChannel(), request(38), {}, None),
        (FakeChannel(), request(38), {"vouches": True}, OWN),
        (FakeChannel(), signed(request(38)), {"vouches": True}, ALICE),
        (FakeChannel(), signed(request(38)), {"replaces_signatures": True}, OWN),
        (FakeChannel(), request(38), {"replaces_signatures": True}, OWN),
    ],
    ids=[
        "own request",
        "gRPC",
        "signed by the client",
        "unsigned",
        "unsigned, authenticated by Gantry",
        "signed, authenticated by Gantry",
        "signed, to be signed again",
        "unsigned, to be signed",
    ],
)
def test_request_is_signed_by_its_sender(
    channel: FakeChannel | None, command: RemotingCommand, options: dict[str, bool], signer: Credentials | None
) -> None:
    received = dict(command.fields)
    sent = command.copy()
    Signer(OWN, **options).sign_outgoing(channel, sent)
    if signer is None:
        assert sent.fields == received
    else:
        assert verify(sent, signer.key)
        assert sent.fields[ACCESS_KEY] == signer.access_key
        assert sent.fields is sent.header["extFields"]
    assert command.fields == received, "observers see the client's fields"


def test_signer_without_credentials_removes_signatures() -> None:
    command = signed(request(38, consumerGroup="g"))
    Signer(None, replaces_signatures=True).sign_outgoing(FakeChannel(), command)
    assert command.fields == command.header["extFields"] == {"consumerGroup": "g"}


@pytest.mark.parametrize("code", [RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY])
@pytest.mark.parametrize("by_client", [True, False])
def test_requests_that_brokers_show_to_clients_are_not_signed_for_others(code: RequestCode, by_client: bool) -> None:
    """A client that gets Gantry's signature could send any request as Gantry."""
    command = request(code, clientId="c1", consumerGroup="g")
    if by_client:
        signed(command)
    sent = command.copy()
    Signer(OWN, replaces_signatures=True, vouches=True).sign_outgoing(FakeChannel(), sent)
    assert sent.fields == command.fields
    Signer(None, replaces_signatures=True).sign_outgoing(FakeChannel(), sent)
    assert sent.fields == {"clientId": "c1", "consumerGroup": "g"}
    assert (SIGNATURE in command.fields) is by_client, "observers see the client's fields"
    Signer(OWN).sign_outgoing(None, sent)
    assert verify(sent, OWN.key), "the operator's own requests are"


@pytest.mark.parametrize(
    ("signatures", "authenticates", "expected"),
    [
        (ClientSignatures.BOTH, True, (True, True)),
        (ClientSignatures.BOTH, False, (False, False)),
        (ClientSignatures.PASS, True, (False, True)),
        (ClientSignatures.PASS, False, (False, False)),
        (ClientSignatures.CHECK, False, (True, True)),
    ],
)
def test_judge_of_signed_and_unsigned_requests(
    signatures: ClientSignatures, authenticates: bool, expected: tuple[bool, bool]
) -> None:
    settings = Settings(cluster=ClusterSettings(client_signatures=signatures))
    assert _judged(settings, authenticates) == expected
    embedded = Settings(embedded=EmbeddedSettings(directory=Path("data")))
    assert _judged(embedded, authenticates) == (True, True)


def _judged(settings: Settings, authenticates: bool) -> tuple[bool, bool]:
    policy = signing_policy(settings, authenticates)
    return policy.judges_signed, policy.judges_unsigned


@pytest.mark.parametrize(("replaces_signatures", "changed"), [(False, False), (True, True)])
async def test_signed_request_is_changed_only_if_gantry_signs_it(replaces_signatures: bool, changed: bool) -> None:
    on = stage()
    on.core.signing = SigningPolicy(Signer(OWN, replaces_signatures=replaces_signatures))
    poll = signed(complete(REQUESTS[RequestCode.POP_MESSAGE], bornTime="17", bname="broker-a"))
    await on.ask(poll)
    await on.ask(signed(complete(REQUESTS[RequestCode.SEND_MESSAGE_V2])))
    assert (on.backend.sent[0].fields["bornTime"] == "0") is changed
    assert (BORN in on.backend.sent[1].fields.get("i", "")) is changed


# Locks at several brokers.


@pytest.mark.parametrize("group", ["g", "another"])
async def test_parts_of_a_members_lock_request_are_signed(group: str) -> None:
    on = stage(grants())
    on.backend.names = ("broker-a",)
    on.core.signing = SigningPolicy(Signer(OWN))
    client = FakeChannel()
    await on.handle(heartbeat("c1", {group: []}), client, 0)
    await on.ask(signed(ask(LOCK)), client)
    assert {sent.broker for sent in on.backend.sent} == {"broker-a", "broker-b"}
    for sent in on.backend.sent:
        command = commands.request(sent.code, dict(sent.fields), sent.body)
        assert verify(command, OWN.key) is (group == "g"), "the brokers accepted it only as a member of its groups"


@pytest.mark.parametrize("code", [LOCK, UNLOCK])
async def test_locks_of_other_client_ids_are_not_signed(code: RequestCode) -> None:
    """To brokers, Gantry may release the locks of every member."""
    on = stage(grants())
    on.backend.names = ("broker-a",)
    on.core.signing = SigningPolicy(Signer(OWN))
    client = FakeChannel()
    await on.handle(signed(heartbeat("c2", {"g": []})), client, 0)
    await on.ask(signed(ask(code)), client)
    assert on.registry.consumer_ids("g") == {"c2"}
    for sent in on.backend.sent:
        assert not verify(commands.request(sent.code, dict(sent.fields), sent.body), OWN.key)


async def test_lock_request_behind_a_heartbeat_that_no_broker_has_accepted_is_not_signed() -> None:
    on = stage(grants())
    on.backend.names = ("broker-a",)
    on.backend.registering, on.backend.denial = asyncio.Event(), "no permission"
    on.core.signing = SigningPolicy(Signer(OWN))
    client = FakeChannel()
    beating = asyncio.ensure_future(on.handle(signed(heartbeat("c1", {"g": []})), client, 0))
    await settle()
    await on.ask(signed(ask(LOCK)), client)
    assert [verify(commands.request(sent.code, dict(sent.fields), sent.body), OWN.key) for sent in on.backend.sent] == [
        False,
        False,
    ]
    on.backend.registering.set()
    with pytest.raises(NotPermitted):
        await beating


async def test_unsigned_lock_request_is_not_signed() -> None:
    on = stage(grants())
    on.backend.names = ("broker-a",)
    on.core.signing = SigningPolicy(Signer(OWN))
    client = FakeChannel()
    await on.handle(heartbeat("c1", {"g": []}), client, 0)
    await on.ask(ask(LOCK, QUEUES), client)
    assert not any(SIGNATURE in sent.fields for sent in on.backend.sent)


# Memberships.


class DenyingBackend(FakeBackend):
    """Brokers that deny memberships."""

    def register(self, channel: Any, groups: Any, brokers: Any) -> Any:
        async def registering() -> None:
            raise NotPermitted("no permission")

        return registering()


async def test_heartbeat_without_the_left_group_is_signed_again() -> None:
    on = stage(FakeBackend(warm={"orders": route("orders")}))
    on.core.signing = SigningPolicy(Signer(OWN))
    client = FakeChannel()
    beat = signed(heartbeat("c1", {"g": ["orders"], "h": ["orders"]}))
    await on.handle(beat, client, 0)
    member = on.registry.member(client)
    assert member is not None
    await leave(on.core, client, member.groups)
    await on.handle(beat, client, 0)
    rest = request(RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup="g")
    await on.ask(signed(rest), client)
    kept = client.session.membership.heartbeat
    assert kept is not None
    assert kept.fields[ACCESS_KEY] == "gantry"
    assert SECURITY_TOKEN not in kept.fields
    assert verify(kept, OWN.key)
    assert verify(beat, ALICE.key)


async def test_client_whose_heartbeat_brokers_deny_is_no_member() -> None:
    on = stage(DenyingBackend(warm={"orders": route("orders")}))
    client = FakeChannel()
    with pytest.raises(NotPermitted):
        await on.ask(heartbeat("c1", {"g": ["orders"]}), client)
    assert on.registry.member(client) is None
    assert on.registry.consumer_ids("g") == set()


@pytest.mark.parametrize(
    "code", [RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.GET_CONSUMER_CONNECTION_LIST], ids=str
)
async def test_denied_group_query_shows_no_members(code: RequestCode) -> None:
    def deny(_: str, __: RemotingCommand) -> RemotingCommand:
        return commands.response(ResponseCode.NO_PERMISSION, remark="no permission")

    on = stage(FakeBackend(names=["broker-a"], answer=deny))
    await on.handle(heartbeat("c1", {"g": []}), FakeChannel(), 0)
    reply = await on.ask(request(code, consumerGroup="g"))
    assert (reply.code, reply.body) == (ResponseCode.NO_PERMISSION, b"")


@pytest.mark.parametrize(
    "code", [RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.GET_CONSUMER_CONNECTION_LIST], ids=str
)
@pytest.mark.parametrize("brokers", [[], ["broker-a"]], ids=["no broker", "a broker that is away"])
async def test_group_query_that_brokers_must_judge_shows_no_members_without_them(
    code: RequestCode, brokers: list[str]
) -> None:
    def away(broker: str, _: RemotingCommand) -> RemotingCommand:
        raise ServiceUnavailable(f"{broker} is away")

    on = stage(FakeBackend(names=brokers, answer=away))
    await on.handle(heartbeat("c1", {"g": []}), FakeChannel(), 0)
    with pytest.raises(ServiceUnavailable, match="brokers decide"):
        await on.ask(signed(request(code, consumerGroup="g")))


# The producer's address.


def _sent_born_host(on: Stage) -> str | None:
    return properties.get(on.backend.sent[-1].fields["i"], BORN)


def _send(topic: str = "orders", host: str = "1.2.3.4:5") -> RemotingCommand:
    return complete(REQUESTS[RequestCode.SEND_MESSAGE_V2], b=topic, i=f"TAGS\x01a\x02{BORN}\x01{host}\x02")


async def test_born_host_of_another_address_is_replaced() -> None:
    on = stage()
    await on.ask(_send())
    assert _sent_born_host(on) == "192.0.2.7:50000"
    assert properties.get(on.backend.sent[-1].fields["i"], "TAGS") == "a"


@pytest.mark.parametrize(
    ("channel", "topic", "host"),
    [
        (FakeChannel(), "orders", "192.0.2.7:50000"),
        (FakeChannel(), "%RETRY%g", "1.2.3.4:5"),
        (grpc_channel(), "orders", "producer.example"),
    ],
    ids=["the client's own", "a message sent back", "gRPC"],
)
async def test_permitted_born_host_is_kept(channel: FakeChannel, topic: str, host: str) -> None:
    on = stage()
    await on.ask(_send(topic, host), channel)
    assert _sent_born_host(on) == host


@pytest.mark.parametrize("replaces_signatures", [False, True])
async def test_forged_born_host_in_a_signed_send_is_rejected_or_replaced(replaces_signatures: bool) -> None:
    on = stage()
    on.core.signing = SigningPolicy(Signer(OWN, replaces_signatures=replaces_signatures))
    if replaces_signatures:
        await on.ask(signed(_send()))
        assert _sent_born_host(on) == "192.0.2.7:50000"
    else:
        with pytest.raises(InvalidRequest, match=BORN):
            await on.ask(signed(_send()))
        assert not on.backend.sent


@pytest.mark.parametrize(("text", "forged"), [(f"{BORN}\x011.2.3.4:5\x02", True), (f"note\x01{BORN}\x02", False)])
async def test_batch_with_a_forged_born_host_is_rejected(text: str, forged: bool) -> None:
    on = stage()
    batch = messages.encode_batch([BatchMessage(0, b"a", ""), BatchMessage(0, BORN.encode(), text)])
    command = complete(REQUESTS[RequestCode.SEND_BATCH_MESSAGE])
    command.body = batch
    if forged:
        with pytest.raises(InvalidRequest, match=BORN):
            await on.ask(command)
    else:
        await on.ask(command)
    assert len(on.backend.sent) == (not forged)


@pytest.mark.parametrize(
    ("code", "name", "batch"),
    [
        (RequestCode.SEND_BATCH_MESSAGE, "i", {"m": "false"}),
        (RequestCode.SEND_BATCH_MESSAGE, "i", {}),
        (RequestCode.SEND_MESSAGE_V2, "i", {"m": "true"}),
        (RequestCode.SEND_MESSAGE, "properties", {"batch": "TRUE"}),
    ],
)
async def test_forged_born_host_is_found_wherever_a_broker_reads_it(
    code: RequestCode, name: str, batch: dict[str, str]
) -> None:
    """Brokers decide by the flag, not by the request code, where the properties are."""
    on, forged = stage(), f"{BORN}\x011.2.3.4:5\x02"
    on.core.signing = SigningPolicy(Signer(OWN))
    command = signed(complete(REQUESTS[code], **batch, **{name: forged}))
    with pytest.raises(InvalidRequest, match=BORN):
        await on.ask(command)
    command = signed(complete(REQUESTS[code], **batch))
    command.body = messages.encode_batch([BatchMessage(0, b"a", forged)])
    if batch.get("m") != "false":
        with pytest.raises(InvalidRequest, match=BORN):
            await on.ask(command)
    # Unsigned requests may be changed.
    await on.ask(complete(REQUESTS[code], **batch, **{name: forged}))
    assert properties.get(on.backend.sent[-1].fields[name], BORN) in ("192.0.2.7:50000", None)
