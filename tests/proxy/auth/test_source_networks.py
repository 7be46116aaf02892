"""Policies and exemptions for source networks, before clients that claim another address."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from protos.apache.rocketmq.v2.definition_pb2 import Code
from proxy.app import App
from proxy.settings.model import Settings
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.frame import FrameDecoder
from remoting.signature import Credentials
from tests.protocol_negotiation.samples import encode_v2, tcp4
from tests.proxy.auth.replica import dialled
from tests.proxy.auth.requests import command
from tests.proxy.auth.rpcs import GrpcClient, rpcs
from tests.proxy.auth.users import ROOT, new_topic, signed, undelayed, write
from tests.proxy.replica import Client, running

pytestmark = pytest.mark.anyio

INSIDE, LOAD_BALANCER, OUTSIDE = "10.1.2.3", "127.0.0.3", "127.0.0.2"
DORA = Credentials("dora-1", "secret-of-dora")
_USERS = """
[users.dora-1]
secret = "secret-of-dora"
[[users.dora-1.policies]]
resources = "*"
actions = "All"
sources = "10.0.0.0/8"

[users.root-01]
secret = "secret-of-root"
role = "super"
"""
_PLAIN_ACL = """
globalWhiteRemoteAddresses: [10.1.2.*]
accounts:
- {accessKey: root-01, secretKey: secret-of-root, admin: true}
"""


def _v1(address: str) -> bytes:
    return f"PROXY TCP4 {address} 10.0.0.9 50000 8080\r\n".encode()


def _v2(address: str, command: int = 1) -> bytes:
    """A header of version 2. Command 0 is for a connection of the proxy's own: then addresses do not count."""
    return encode_v2(0x11, tcp4(address, "10.0.0.9", 50000, 8080), command=command)


def _settings(folder: Path, **auth: Any) -> Settings:
    return Settings(
        listen=[{"address": "127.0.0.1:0", "trusted_proxies": [f"{LOAD_BALANCER}/32"]}],
        embedded={"directory": folder / "data"},
        admin={"listen": "off"},
        auth=auth,
        drain_timeout=0.2,
    )


async def _answer(app: App, source: str, before: bytes, user: Credentials | None) -> int | None:
    """Return the response code of a route request after these bytes; None if the connection is closed."""
    sent = signed(command(RequestCode.GET_ROUTEINFO_BY_TOPIC), user)
    async with asyncio.timeout(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", app.addresses[0].port, local_addr=(source, 0))
        try:
            writer.write(before + sent.encode())
            decoder = FrameDecoder()
            while data := await reader.read(65_536):
                for frame in decoder.feed(data):
                    return commands.decode(frame).code
        except ConnectionError:
            pass
        finally:
            writer.close()
    return None


DENIED = int(ResponseCode.NO_PERMISSION)
_CLAIMS = [
    # The load balancer's header counts, one of its own connections and one of others does not.
    (LOAD_BALANCER, _v1(INSIDE), 0),
    (LOAD_BALANCER, _v2(INSIDE), 0),
    (LOAD_BALANCER, _v1("192.0.2.1"), DENIED),
    (LOAD_BALANCER, _v2(INSIDE, 0), DENIED),
    (LOAD_BALANCER, b"", DENIED),
    (OUTSIDE, _v1(INSIDE), None),
    (OUTSIDE, _v2(INSIDE), None),
    (OUTSIDE, b"", DENIED),
    # A second header is a client's, which forwards it through the load balancer.
    (LOAD_BALANCER, _v1("192.0.2.1") + _v1(INSIDE), None),
    (LOAD_BALANCER, _v2("192.0.2.1") + _v2(INSIDE), None),
]


async def _create_topic(app: App) -> None:
    assert app.authority is not None
    undelayed(app.authority)
    client = await Client.connect(app)
    assert (await client.ask(new_topic("orders"))).code == 0
    await client.close()


async def test_policies_with_sources_apply_to_true_addresses(tmp_path: Path) -> None:
    async with running(_settings(tmp_path, users=write(tmp_path / "users.toml", _USERS))) as app:
        await _create_topic(app)
        for source, header, code in _CLAIMS:
            assert await _answer(app, source, header, DORA) == code, (source, header)
            # Root needs no address.
            expected = 0 if code == DENIED else code
            assert await _answer(app, source, header, ROOT) == expected, (source, header)


async def test_exempt_addresses_are_true_addresses(tmp_path: Path) -> None:
    async with running(_settings(tmp_path, plain_acl=write(tmp_path / "acl.yml", _PLAIN_ACL))) as app:
        await _create_topic(app)
        for source, header, code in _CLAIMS:
            assert await _answer(app, source, header, None) == code, (source, header)


async def test_metadata_does_not_change_the_address_of_grpc_clients(tmp_path: Path) -> None:
    async with (
        running(_settings(tmp_path, users=write(tmp_path / "users.toml", _USERS))) as app,
        dialled(app) as channel,
    ):
        await _create_topic(app)
        client = GrpcClient(channel, DORA)
        for name in ("x-forwarded-for", "x-real-ip", "rpc-remote-address", "x-mq-authorization-ak", "forwarded"):
            client.metadata = (*client.metadata, (name, INSIDE))
        assert await client.call("QueryRoute", rpcs()["QueryRoute"]) == Code.FORBIDDEN
