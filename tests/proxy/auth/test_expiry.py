"""Open polls, streams and memberships of senders whose token or user expires."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.app import App
from proxy.frontends.revocation import Revocation
from remoting.codes import RequestCode
from tests.proxy.auth.replica import NO_PERMISSION, dialled, replica
from tests.proxy.auth.requests import command
from tests.proxy.auth.rpcs import GrpcClient, bearer, ended, opened, receive, rpcs
from tests.proxy.auth.tokens import publish
from tests.proxy.auth.users import ALICE, OWN_FILE, signed
from tests.proxy.messages import heartbeat
from tests.proxy.replica import Client, soon
from tests.waiting import until

pytestmark = pytest.mark.anyio

_HOUR = 3600


def pass_time(app: App, seconds: float) -> None:
    """Let tokens expire now that are valid for less than these seconds."""
    assert app.authority is not None
    [revocation] = [
        owner
        for refresher in app.authority.refreshers
        if isinstance(owner := getattr(refresher, "__self__", None), Revocation)
    ]
    revocation.clock = lambda: time.time() + seconds


async def test_an_expired_token_ends_polls_streams_and_memberships(tmp_path: Path) -> None:
    auth = {"jwks": str(publish(tmp_path))}
    async with replica(tmp_path, auth=auth) as app, dialled(app) as channel:
        client, silent = bearer(channel), bearer(channel, client_id="c2")
        stream = await opened(client)
        # A client that has not sent its settings.
        other = silent.stub.Telemetry(metadata=silent.metadata)
        await until(lambda: len(app.grpc.service.telemetry.streams) == 2)
        receiving = asyncio.ensure_future(client.call("ReceiveMessage", receive()))
        await until(lambda: app.registry.consumer_ids("g") and app.core.in_flight)
        pass_time(app, 2 * _HOUR)
        for open_stream in (stream, other):
            await ended(open_stream)
        assert await soon(receiving) == Code.UNAUTHORIZED
        await until(lambda: not app.registry.consumer_ids("g"))
        assert len(app.grpc.clients) == len(app.grpc.service.telemetry.streams) == 0


async def test_a_newer_token_keeps_the_client_but_not_the_stream_of_the_older_one(tmp_path: Path) -> None:
    auth = {"jwks": str(publish(tmp_path))}
    async with replica(tmp_path, auth=auth) as app, dialled(app) as channel:
        stream = await opened(bearer(channel))
        newer = bearer(channel, 3 * _HOUR)
        assert await newer.call("SendMessage", rpcs()["SendMessage"]) == Code.OK
        pass_time(app, 2 * _HOUR)
        await ended(stream)
        assert {client.client_id for client in app.grpc.clients} == {"c1"}
        assert (await opened(newer)).cancel()


async def test_an_expired_user_loses_polls_streams_and_memberships(tmp_path: Path) -> None:
    async with replica(tmp_path) as app, dialled(app) as channel:
        client, remoting, poller = GrpcClient(channel, ALICE), await Client.connect(app), await Client.connect(app)
        assert (await remoting.ask(signed(heartbeat("r1", {"g": ["orders"]}), ALICE))).code == 0
        stream = await opened(client)
        pull = command(
            RequestCode.PULL_MESSAGE, suspendTimeoutMillis="20000", sysFlag="2", queueOffset="0", maxMsgNums="1"
        )
        polling = asyncio.ensure_future(poller.ask(signed(pull, ALICE)))
        receiving = asyncio.ensure_future(client.call("ReceiveMessage", receive()))
        await until(lambda: sum(len(context.channel.session.polls) for context in app.core.in_flight) == 2)
        expires = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
        secret = 'secret = "secret-of-alice"\n'
        (tmp_path / "users.txt").write_text(OWN_FILE.replace(secret, f"{secret}expires = {expires}\n"))
        assert (await soon(polling)).code == NO_PERMISSION
        assert await soon(receiving) == Code.FORBIDDEN
        await ended(stream)
        await soon(remoting.gone.wait())
        await until(lambda: not app.registry.consumer_ids("g"))
        await poller.close()
