import asyncio
from pathlib import Path

import pytest

from protocol_negotiation import listener
from protocol_negotiation.peer import HostPort
from proxy.tools.cert.authority import Authority
from proxy.tools.remoting_client import connect, route_fields
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingError
from tests.ports import HOST, free_port
from tests.protocol_negotiation.tls_handshake import client_context
from tests.proxy.tools.doctor.servers import replica

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_the_embedded_brokers_listener_obeys_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    issued = authority.issue_server("server", [HOST], 30)
    tls = {"mode": "enforcing", "certificate": issued.certificate, "key": issued.key}
    address = HostPort(HOST, free_port())
    async with replica(tmp_path / "broker", tls=tls, embedded={"listen": str(address)}) as app:
        async with connect(address, 30.0, tls=client_context(authority)) as client:
            reply = await client.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, route_fields("orders"))
            assert reply.code == ResponseCode.SUCCESS
        with pytest.raises((RemotingError, OSError, asyncio.TimeoutError)):
            async with connect(address, 30.0) as client:
                await client.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, route_fields("orders"))
        assert app.metrics.negotiations.outcomes["embedded", "plaintext_refused"] == 1


async def test_all_clients_leave_descriptors_to_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "first_reserved_descriptor", lambda: 0)
    address = HostPort(HOST, free_port())
    async with replica(tmp_path / "broker", embedded={"listen": str(address)}) as app:
        for each in (address, app.addresses[0]):
            with pytest.raises((RemotingError, OSError)):
                async with connect(each, 30.0) as client:
                    await client.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, route_fields("orders"))
        assert {outcome for _, outcome in app.metrics.negotiations.outcomes} == {"overload"}
