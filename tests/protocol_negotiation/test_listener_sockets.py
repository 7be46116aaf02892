"""Sockets of the listener: addresses, Unix sockets, options, restart."""

import asyncio
import os
import socket
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from protocol_negotiation.detect import Protocol
from protocol_negotiation.listener import Listener, ListenerOptions
from protocol_negotiation.peer import HostPort
from protocol_negotiation.rejection import Http1Rejector
from tests.protocol_negotiation.samples import FRAME, PROXY_V2
from tests.protocol_negotiation.servers import (
    Run,
    close_client,
    listening,
)


def test_accepted_sockets_have_tcp_nodelay(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as running:
            _, writer = await running.connect()
            writer.write(FRAME)
            _, recorder = await running.recorder()
            accepted = recorder.transport.get_extra_info("socket")
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            await close_client(writer)

    run(scenario())


def _keepalive(accepted: socket.socket) -> tuple[int, ...]:
    """Return keepalive on or off, its idle time, interval and probes, and TCP_USER_TIMEOUT in ms."""
    names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
    enabled = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    return (enabled, *(accepted.getsockopt(socket.IPPROTO_TCP, name) for name in names))


@pytest.mark.parametrize("address", [":0", "127.0.0.1:0"])
@pytest.mark.parametrize(
    ("timeout", "expected"), [(12, (1, 6, 2, 3, 12_000)), (1, (1, 1, 1, 3, 1_000)), (100, (1, 52, 16, 3, 100_000))]
)
def test_accepted_sockets_notice_a_dead_peer(run: Run, address: str, timeout: int, expected: tuple[int, ...]) -> None:
    async def scenario() -> None:
        async with listening(address=address, dead_peer_timeout=timeout) as running:
            _, writer = await running.connect(host="127.0.0.1")
            writer.write(FRAME)
            _, recorder = await running.recorder()
            assert _keepalive(recorder.transport.get_extra_info("socket")) == expected
            await close_client(writer)

    run(scenario())


def test_accepted_sockets_keep_the_options_of_the_system_without_a_timeout(run: Run) -> None:
    async def scenario() -> None:
        async with listening(dead_peer_timeout=0) as running:
            _, writer = await running.connect()
            writer.write(FRAME)
            _, recorder = await running.recorder()
            accepted = _keepalive(recorder.transport.get_extra_info("socket"))
            assert (accepted[0], accepted[-1]) == (0, 0)
            await close_client(writer)

    run(scenario())


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_USER_TIMEOUT is a part of Linux")
def test_timeout_of_a_dead_peer_applies_to_a_client_that_reads_nothing(run: Run) -> None:
    """As limits.dead_peer_timeout says: its kernel answers, but the data wait for longer than the timeout."""

    async def scenario() -> None:
        async with listening(dead_peer_timeout=1) as running:
            with socket.create_connection(("127.0.0.1", running.address.port), 30) as client:
                client.sendall(FRAME)
                _, recorder = await running.recorder()
                recorder.transport.write(bytes(16 * 2**20))
                async with asyncio.timeout(30):
                    while not recorder.transport.is_closing():
                        await asyncio.sleep(0.05)

    run(scenario())


@pytest.mark.parametrize(
    ("address", "reached", "unreached"),
    [
        (":0", ("127.0.0.1", "::1"), ()),
        ("[::]:0", ("127.0.0.1", "::1"), ()),
        ("0.0.0.0:0", ("127.0.0.1",), ("::1",)),
        ("[::1]:0", ("::1",), ("127.0.0.1",)),
    ],
)
def test_address_families_by_listen_address(
    run: Run, address: str, reached: tuple[str, ...], unreached: tuple[str, ...]
) -> None:
    async def scenario() -> None:
        async with listening(address=address) as running:
            assert running.address.port > 0
            for host in reached:
                _, writer = await running.connect(host=host)
                writer.write(FRAME)
                _, recorder = await running.recorder()
                assert recorder.peer.address == HostPort(*writer.get_extra_info("sockname")[:2])
                assert recorder.peer.local == HostPort(host, running.address.port)
                await close_client(writer)
            for host in unreached:
                with pytest.raises(OSError, match=r"."):
                    await running.connect(host=host)

    run(scenario())


def test_a_host_name_is_bound_on_one_port(run: Run) -> None:
    async def scenario() -> None:
        async with listening(address="localhost:0") as running:
            assert {address.port for address in running.listener.addresses} == {running.address.port}
            for address in running.listener.addresses:
                _, writer = await running.connect(host=address.host)
                await close_client(writer)

    run(scenario())


def test_a_port_in_use_raises_os_error(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as running:
            with pytest.raises(OSError, match="in use"):
                async with listening(address=str(running.address)):
                    pass

    run(scenario())


def test_two_listeners_may_reuse_a_port(run: Run) -> None:
    async def scenario() -> None:
        async with (
            listening(reuse_port=True) as running,
            listening(address=str(running.address), reuse_port=True) as other,
        ):
            assert other.address == running.address

    run(scenario())


def test_a_unix_socket_is_served_and_removed(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "gantry.sock"
        async with listening(address=f"unix:{path}") as running:
            assert running.address == HostPort(f"unix:{path}", 0)
            for header in (b"", PROXY_V2):
                _, writer = await asyncio.open_unix_connection(path)
                writer.write(header + FRAME)
                _, recorder = await running.recorder()
                await recorder.until(lambda r: r.received == FRAME)
                peer = recorder.peer
                if header:
                    assert (peer.address, peer.via) == (HostPort("192.0.2.7", 51000), HostPort("unix:", 0))
                else:
                    assert (peer.address, peer.local, peer.via) == (HostPort("unix:", 0), running.address, None)
                await close_client(writer)
            with pytest.raises(OSError, match="another process listens"):
                async with listening(address=f"unix:{path}"):
                    pass
            assert path.exists()
        assert not path.exists()

    run(scenario())


@pytest.mark.parametrize(("options", "mode"), [({}, 0o600), ({"socket_mode": 0o660}, 0o660)])
def test_only_the_owner_may_open_a_unix_socket_unless_the_mode_says_otherwise(
    run: Run, tmp_path: Path, options: dict[str, Any], mode: int
) -> None:
    """Whoever may open it names the client's address by a PROXY header."""

    async def scenario() -> None:
        path = tmp_path / "gantry.sock"
        before = os.umask(0)
        try:
            async with listening(address=f"unix:{path}", **options):
                assert stat.S_IMODE(path.stat().st_mode) == mode
        finally:
            os.umask(before)

    run(scenario())


def test_a_stale_unix_socket_is_replaced_but_no_other_file(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "gantry.sock"
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        async with listening(address=f"unix:{path}"):
            _, writer = await asyncio.open_unix_connection(path)
            await close_client(writer)
        path.write_text("precious")
        with pytest.raises(OSError, match="not a socket"):
            async with listening(address=f"unix:{path}"):
                pass
        assert path.read_text() == "precious"

    run(scenario())


def test_close_keeps_the_socket_file_of_a_successor(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "gantry.sock"
        async with listening(address=f"unix:{path}") as running:
            path.unlink()
            async with listening(address=f"unix:{path}"):
                await running.listener.close()
                assert path.exists()

    run(scenario())


def test_a_listener_can_be_restarted_after_close(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as running:
            with pytest.raises(RuntimeError, match="has been started already"):
                await running.listener.start()
            await running.listener.close()
            await running.listener.start()
            _, writer = await running.connect()
            writer.write(FRAME)
            await running.recorder()
            await close_client(writer)

    run(scenario())


def test_invalid_options_raise_value_error() -> None:
    options = ListenerOptions("main", HostPort("", 0))
    with pytest.raises(ValueError, match="needs a certificate"):
        Listener(options, {}, None, lambda *_: None)
    with pytest.raises(ValueError, match="handed over as tls"):
        Listener(options, {Protocol.TLS: Http1Rejector}, None, lambda *_: None)
    with pytest.raises(ValueError, match="negotiation_timeout"):
        ListenerOptions("main", HostPort("", 0), negotiation_timeout=0)
    with pytest.raises(ValueError, match="max_connections"):
        ListenerOptions("main", HostPort("", 0), max_connections=0)
    with pytest.raises(ValueError, match="max_connections_per_address"):
        ListenerOptions("main", HostPort("", 0), max_connections_per_address=-1)
    with pytest.raises(ValueError, match="max_negotiations"):
        ListenerOptions("main", HostPort("", 0), max_negotiations=0)
    with pytest.raises(ValueError, match="max_handshakes"):
        ListenerOptions("main", HostPort("", 0), max_handshakes=0)
