"""Replies of request-reply, and other pushes, before clients that claim the client id of another user."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.app import App
from proxy.core import reply_recipients
from remoting import properties
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.names import DEFAULT_TOPIC
from remoting.signature import Credentials
from tests.cluster.client import Client, send_fields, v2
from tests.ports import free_port
from tests.proxy.auth.replica import replica
from tests.proxy.auth.users import ALICE, BOB, ROOT, new_topic
from tests.waiting import until

pytestmark = pytest.mark.anyio

ID = "10.0.0.1@4711"
PUSH = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT


@asynccontextmanager
async def listening(folder: Path, place: str) -> AsyncIterator[tuple[App, str]]:
    """A replica, and the address of its listener for clients or of the embedded broker's own."""
    broker = f"127.0.0.1:{free_port()}"
    embedded = {"directory": folder / "data", "listen": broker, "transaction_timeout": 1, "transaction_interval": 1}
    async with replica(folder, embedded=embedded) as app:
        yield app, broker if place == "broker" else f"127.0.0.1:{app.addresses[0].port}"


def connected(address: str, user: Credentials, client_id: str = "") -> Client:
    return Client(address, client_id, broker=None, credentials=user)


def pairs(correlation: str = "x-1") -> dict[str, str]:
    return {"CORRELATION_ID": correlation, "REPLY_TO_CLIENT": ID, "TTL": "3000"}


async def ask(client: Client, correlation: str = "x-1") -> None:
    fields = v2(send_fields("orders", properties.encode(pairs(correlation)), producerGroup="askers"))
    await client.get(RequestCode.SEND_MESSAGE_V2, fields, b"question")


async def answer(address: str, user: Credentials = ALICE, correlation: str = "x-1") -> RemotingCommand:
    text = properties.encode({**pairs(correlation), "MSG_TYPE": "reply"})
    async with connected(address, user) as replier:
        fields = v2(send_fields("orders", text, producerGroup="repliers"))
        return await replier.ask(RequestCode.SEND_REPLY_MESSAGE_V2, fields, b"answer")


@pytest.mark.parametrize("place", ["clients", "broker"])
async def test_a_reply_reaches_the_client_that_has_asked(tmp_path: Path, place: str) -> None:
    async with listening(tmp_path, place) as (app, address), connected(address, ALICE, ID) as alice:
        await alice.heartbeat(producers=["askers"])
        await ask(alice)
        assert (await answer(address)).code == ResponseCode.SUCCESS
        assert (await alice.push(PUSH)).body == b"answer"
        # Once.
        assert (await answer(address)).code == ResponseCode.SYSTEM_ERROR
        assert not alice.pushes
        assert app.guards.replies is not None
        assert len(app.guards.replies) == 0


@pytest.mark.parametrize("place", ["clients", "broker"])
async def test_a_client_with_the_id_of_another_user_gets_no_reply(tmp_path: Path, place: str) -> None:
    async with (
        listening(tmp_path, place) as (_, address),
        connected(address, ROOT, ID) as thief,
        connected(address, ALICE, ID) as alice,
    ):
        # Even a super user, whose registration the broker finds first.
        for client in (thief, alice):
            await client.route("orders")
            await client.heartbeat(producers=["askers"])
        await ask(alice)
        # It knows the correlation id, too, and asks in its turn.
        await ask(thief)
        reply = await answer(address)
        assert not thief.pushes
        if place == "clients":
            assert reply.code == ResponseCode.SUCCESS
            assert (await alice.push(PUSH)).body == b"answer"
        else:
            assert reply.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("place", ["clients", "broker"])
async def test_nobody_can_push_a_reply_that_was_not_asked_for(tmp_path: Path, place: str) -> None:
    async with listening(tmp_path, place) as (_, address), connected(address, ALICE, ID) as alice:
        await alice.heartbeat(producers=["askers"])
        for user in (ROOT, ALICE):
            assert (await answer(address, user)).code == ResponseCode.SYSTEM_ERROR
        # The reply to another client's message, which names alice's id.
        async with connected(address, ROOT) as root:
            await ask(root)
            assert (await answer(address, ROOT)).code == ResponseCode.SYSTEM_ERROR
        assert not alice.pushes


async def test_a_reply_reaches_another_connection_of_the_same_user(tmp_path: Path) -> None:
    async with (
        listening(tmp_path, "clients") as (_, address),
        connected(address, ALICE, ID) as one,
        connected(address, ALICE, ID) as other,
    ):
        await one.route("orders")
        await one.heartbeat(producers=["askers"])
        await ask(other)
        assert (await answer(address)).code == ResponseCode.SUCCESS
        assert (await one.push(PUSH)).body == b"answer"


async def test_messages_without_a_reply_are_bounded_and_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply_recipients, "_MAX_ASKED", 3)
    async with listening(tmp_path, "clients") as (app, address):
        waiting = app.guards.replies
        assert waiting is not None
        async with connected(address, ALICE, ID) as alice:
            await alice.heartbeat(producers=["askers"])
            before = next(channel.held_request_bytes for channel in app.channels if channel.session.client_id == ID)
            for number in range(5):
                await ask(alice, f"x-{number}")
            await ask(alice, "x" * 1000)
            assert len(waiting) == 3
            held = next(channel.held_request_bytes for channel in app.channels if channel.session.client_id == ID)
            assert held > before
            assert (await answer(address, correlation="x-0")).code == ResponseCode.SYSTEM_ERROR
            assert (await answer(address, correlation="x-4")).code == ResponseCode.SUCCESS
            assert len(waiting) == 2
        await until(lambda: len(waiting) == 0)


@pytest.mark.parametrize("place", ["clients", "broker"])
async def test_transaction_checks_reach_only_users_with_the_permission(tmp_path: Path, place: str) -> None:
    """Everyone may join a producer group, whose members the broker asks in turn."""
    async with listening(tmp_path, place) as (_, address), connected(address, ROOT) as root:
        await root.get(RequestCode.UPDATE_AND_CREATE_TOPIC, dict(new_topic("secret").fields))
        async with connected(address, BOB) as bob, connected(address, ROOT) as permitted:
            for client in (bob, permitted):
                # The core registers a client at the brokers of its routes.
                await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": DEFAULT_TOPIC})
                await client.heartbeat(producers=["p"])
            half: dict[str, Any] = {"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": "A"}
            fields = v2(send_fields("secret", properties.encode(half), producerGroup="p"))
            await root.get(RequestCode.SEND_MESSAGE_V2, fields, b"secret")
            check = await permitted.push(RequestCode.CHECK_TRANSACTION_STATE)
            assert b"secret" in check.body
            await permitted.push(RequestCode.CHECK_TRANSACTION_STATE)
            assert not bob.pushes
