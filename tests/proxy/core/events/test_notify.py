"""Failures of observers and connection listeners."""

import logging
from pathlib import Path
from typing import Any

import pytest

from grpc_gateway.clients.client import Client
from grpc_gateway.clients.rpc import Rpc
from grpc_gateway.clients.server_push import TELEMETRY_PUSH
from proxy.core import connections
from proxy.core.events import Observation
from proxy.core.events.rpc import RpcObserver
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingError
from remoting.requests import REQUESTS
from tests.proxy.fakes import FakeChannel, peer, settle, stage
from tests.proxy.messages import complete, request
from tests.proxy.traffic_rules.replica import grpc_send, run_replica

pytestmark = pytest.mark.anyio


def broken(_: Any) -> None:
    raise KeyError("broken")


async def test_failing_observer_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    on = stage()
    on.core.observers.insert(0, broken)
    reply = on.core.handle(FakeChannel(), complete(REQUESTS[RequestCode.PULL_MESSAGE]))
    assert reply is not None
    assert (await reply).code == ResponseCode.SUCCESS
    await settle()
    # A request rejected at once raises to its client and does not reach the event loop's exception handler.
    with pytest.raises(RemotingError):
        on.core.handle(FakeChannel(), request(15, b"", False))
    assert [code for code, _ in on.observed] == ["PULL_MESSAGE", "UPDATE_CONSUMER_OFFSET"]
    assert [record.getMessage() for record in caplog.records] == ["observer failed"] * 2


def test_failing_observation_is_logged_and_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Observation] = []
    rpc = Rpc(Client("client", peer(), TELEMETRY_PUSH), None, peer())
    with caplog.at_level(logging.ERROR):
        RpcObserver([seen.append]).observe("no such rpc", rpc, object(), 0, 0.0)
    assert seen == []
    assert "observing a request failed" in caplog.text


async def test_rpc_is_answered_although_an_observer_fails(tmp_path: Path) -> None:
    async with run_replica(tmp_path, "") as replica, replica.grpc("orders") as client:
        await replica.create("orders")
        replica.app.core.observers.insert(0, broken)
        # Otherwise the client would send the stored message again.
        assert (await grpc_send(client, b"x")).status.message == "OK"


def test_failing_connection_listener_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    told: list[object] = []
    event: Any = object()
    connections.notify((broken, told.append), event)
    assert told == [event]
    assert "connection listener failed" in caplog.text
