"""Withdrawn credentials of users that remain: what was begun with them ends."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from joserfc.jwk import ECKey

from protocol_negotiation.peer import Peer, PeerCertificate, Tls
from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.auth.authority import Authority
from proxy.auth.sources.brokers import BrokerSource
from proxy.core.principal import Method, Principal
from remoting.codes import RequestCode
from remoting.signature import Credentials
from tests.proxy.auth.replica import NO_PERMISSION, dialled, replica
from tests.proxy.auth.requests import command
from tests.proxy.auth.rpcs import GrpcClient, bearer, ended, opened, receive, rpcs
from tests.proxy.auth.sources.brokers import Brokers
from tests.proxy.auth.tokens import publish
from tests.proxy.auth.users import (
    ALICE,
    BOB,
    FILE_WITH_TOKEN,
    OWN_FILE,
    PLAIN_ACL,
    TOKEN,
    authority,
    grpc_metadata,
    guard,
    plain_authority,
    signed,
    write,
)
from tests.proxy.fakes import Clock, peer
from tests.proxy.messages import heartbeat
from tests.proxy.replica import Client, soon
from tests.waiting import until

pytestmark = pytest.mark.anyio

HOST = "192.0.2.7"
NEW_ALICE = Credentials("alice-1", "newer-secret-of-alice")
ROTATED = OWN_FILE.replace(ALICE.secret_key, NEW_ALICE.secret_key)
PULL = {"suspendTimeoutMillis": "20000", "sysFlag": "2", "queueOffset": "0", "maxMsgNums": "1"}


def by_signature(made: Authority, credentials: Credentials) -> Principal:
    principal = made.of_command(signed(command(RequestCode.GET_ROUTEINFO_BY_TOPIC), credentials), peer())
    assert principal.failure is None
    return principal


def with_certificate(subject: str, fingerprint: str = "ab" * 32) -> Peer:
    certificate = PeerCertificate(subject, "CN=ca", (("dns", "a.example"),), fingerprint, "1", 2e9)
    return peer(tls=Tls("TLSv1.3", "", None, subject, certificate))


async def changed(made: Authority, file: Path, text: str) -> None:
    write(file, text)
    await made.refresh()


async def test_a_new_secret_ends_what_the_former_has_signed(tmp_path: Path) -> None:
    made = authority(tmp_path)
    alice, bob = by_signature(made, ALICE), by_signature(made, BOB)
    of_rpc = guard(made)._principal(grpc_metadata(ALICE), peer())
    await changed(made, tmp_path / "users.toml", f"{OWN_FILE}\n# Read again, with equal secrets.\n")
    assert all(made.is_valid(principal, HOST) for principal in (alice, bob, of_rpc))
    await changed(made, tmp_path / "users.toml", ROTATED)
    assert not made.is_valid(alice, HOST)
    assert not made.is_valid(of_rpc, HOST)
    assert made.is_valid(bob, HOST)
    assert made.is_valid(by_signature(made, NEW_ALICE), HOST)


async def test_a_new_security_token_ends_what_came_with_the_former(tmp_path: Path) -> None:
    made = authority(tmp_path, FILE_WITH_TOKEN)
    alice = by_signature(made, replace(ALICE, security_token=TOKEN))
    assert made.is_valid(alice, HOST)
    await changed(made, tmp_path / "users.toml", FILE_WITH_TOKEN.replace(TOKEN, "newer-token-of-alice"))
    assert not made.is_valid(alice, HOST)


async def test_a_new_secret_in_plain_acl(tmp_path: Path) -> None:
    made = plain_authority(tmp_path)
    alice, bob = by_signature(made, ALICE), by_signature(made, BOB)
    await changed(made, tmp_path / "plain_acl.yml", PLAIN_ACL.replace(ALICE.secret_key, NEW_ALICE.secret_key))
    assert not made.is_valid(alice, HOST)
    assert made.is_valid(bob, HOST)


async def test_a_new_password_at_the_brokers() -> None:
    brokers, clock = Brokers(broker_a="first-secret"), Clock()
    source = BrokerSource(lambda: brokers, 2.0, clock)
    made = Authority([source])
    await made.refresh()
    alice = by_signature(made, Credentials("alice", "first-secret"))
    assert made.is_valid(alice, HOST)
    brokers.secrets["broker-a"] = "second-secret"
    clock.now += 2.0
    await made.refresh()
    assert not made.is_valid(alice, HOST)


async def test_a_removed_name_ends_what_its_certificates_have_begun(tmp_path: Path) -> None:
    file = OWN_FILE.replace("[users.alice-1]", '[users.alice-1]\ncertificates = ["CN=alice", "dns:a.example"]')
    made = authority(tmp_path, file)
    by_subject = made.of_connection(with_certificate("CN=other"))
    assert (by_subject.user, by_subject.method) == ("alice-1", Method.CERTIFICATE)
    assert made.is_valid(by_subject, HOST)
    await changed(made, tmp_path / "users.toml", file.replace(', "dns:a.example"', ""))
    assert not made.is_valid(by_subject, HOST)
    assert made.is_valid(made.of_connection(with_certificate("CN=alice")), HOST)


async def test_an_address_that_is_on_no_white_list_any_more_is_not_exempt(tmp_path: Path) -> None:
    listed = f"globalWhiteRemoteAddresses: [{HOST}]\n{PLAIN_ACL}"
    own = PLAIN_ACL.replace("secret-of-bob\n", f"secret-of-bob\n  whiteRemoteAddress: {HOST}\n")
    made = plain_authority(tmp_path, listed)
    unnamed, named = made.of_connection(peer()), by_signature(made, ALICE)
    assert (unnamed.method, named.method, named.user) == (Method.ADDRESS, Method.ADDRESS, "alice-1")
    assert made.is_valid(unnamed, HOST)
    assert made.is_valid(named, HOST)
    # The secret proves the name.
    rotated = listed.replace(ALICE.secret_key, NEW_ALICE.secret_key)
    await changed(made, tmp_path / "plain_acl.yml", rotated)
    assert made.is_valid(unnamed, HOST)
    assert not made.is_valid(named, HOST)
    await changed(made, tmp_path / "plain_acl.yml", own)
    assert not made.is_valid(unnamed, HOST)
    bob = by_signature(made, Credentials("bob-0001", "any-secret"))
    assert bob.method is Method.ADDRESS
    assert made.is_valid(bob, HOST)
    assert not made.is_valid(bob, "192.0.2.8")
    # The address as such does not prove the name.
    await changed(made, tmp_path / "plain_acl.yml", listed)
    assert not made.is_valid(bob, HOST)


def test_a_principal_shows_no_proof(tmp_path: Path) -> None:
    made = authority(tmp_path, FILE_WITH_TOKEN)
    alice = by_signature(made, replace(ALICE, security_token=TOKEN))
    shown = f"{alice!r} {made.user('alice-1')!r}"
    assert alice.proof
    for secret in (alice.proof, ALICE.secret_key, TOKEN):
        assert secret not in shown
    assert ALICE.secret_key not in alice.proof


async def test_a_new_secret_ends_polls_streams_and_memberships(tmp_path: Path) -> None:
    async with replica(tmp_path) as app, dialled(app) as channel:
        client, remoting, poller = GrpcClient(channel, ALICE), await Client.connect(app), await Client.connect(app)
        assert (await remoting.ask(signed(heartbeat("r1", {"g": ["orders"]}), ALICE))).code == 0
        stream = await opened(client)
        polling = asyncio.ensure_future(poller.ask(signed(command(RequestCode.PULL_MESSAGE, **PULL), ALICE)))
        receiving = asyncio.ensure_future(client.call("ReceiveMessage", receive()))
        await until(lambda: sum(len(context.channel.session.polls) for context in app.core.in_flight) == 2)
        write(tmp_path / "users.txt", ROTATED)
        assert (await soon(polling)).code == NO_PERMISSION
        assert await soon(receiving) == Code.FORBIDDEN
        await ended(stream)
        await soon(remoting.gone.wait())
        await until(lambda: not app.registry.consumer_ids("g"))
        await poller.close()


async def test_a_removed_key_ends_the_streams_of_its_tokens(tmp_path: Path) -> None:
    other = ECKey.generate_key("P-256", {"kid": "2", "alg": "ES256"})
    auth = {"jwks": str(publish(tmp_path)), "jwks_interval": 1}
    async with replica(tmp_path, auth=auth) as app, dialled(app) as channel:
        stream = await opened(bearer(channel))
        publish(tmp_path, other)
        await ended(stream)
        assert len(app.grpc.clients) == 0
        assert await bearer(channel).call("SendMessage", rpcs()["SendMessage"]) == Code.UNAUTHORIZED


async def test_a_stream_ends_with_the_credential_that_opened_it(tmp_path: Path) -> None:
    """The client has sent a newer one since, whose user has the same name."""
    async with replica(tmp_path) as app, dialled(app) as channel:
        stream = await opened(GrpcClient(channel, ALICE))
        [open_stream] = app.grpc.service.telemetry.streams
        assert app.authority is not None
        # As if it had been opened before the last change.
        open_stream.principal = app.authority.principal("alice-1", Method.SIGNATURE, proof="former")
        app.authority.changed()
        await ended(stream)
        assert {known.client_id for known in app.grpc.clients} == {"c1"}
