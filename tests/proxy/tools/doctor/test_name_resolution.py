"""Names and addresses of the endpoint."""

from pathlib import Path

import pytest

from protocol_negotiation.peer import HostPort
from proxy.tools.doctor import name_resolution
from tests.ports import free_port
from tests.proxy.tools.doctor.servers import codes, only, replica, run_doctor

pytestmark = pytest.mark.anyio


async def test_name_is_resolved(tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        found = await run_doctor(HostPort("localhost", app.addresses[0].port))
    assert "127.0.0.1" in only(found, "name.resolved").text
    assert "tcp.accepted" in codes(found)


async def test_ip_address_needs_no_lookup() -> None:
    found = await run_doctor(HostPort("127.0.0.1", free_port()))
    assert codes(found) == {"name.address", "tcp.refused"}
    assert "connect" in only(found, "tcp.refused").text


@pytest.mark.parametrize("host", ["nowhere.invalid", f"{'a' * 64}.example"])
async def test_name_without_address_fails(host: str) -> None:
    found = await run_doctor(HostPort(host, 8080))
    assert codes(found) == {"name.unresolved"}


async def test_unreachable_first_address_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with replica(tmp_path) as app:
        port = app.addresses[0].port

        async def lookup(_: HostPort) -> list[HostPort]:
            return [HostPort("127.0.0.2", port), HostPort("127.0.0.1", port), HostPort("127.0.0.3", port)]

        monkeypatch.setattr(name_resolution, "lookup", lookup)
        found = await run_doctor(HostPort("mq.example", port))
    assert {"tcp.first_refused", "tcp.accepted", "tcp.refused"} <= codes(found)
    assert "endpoint.found" in codes(found)
