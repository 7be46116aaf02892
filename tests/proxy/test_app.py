import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.app import App
from remoting import command as commands
from remoting.codes import GO_AWAY_VERSION, RequestCode
from remoting.command import RemotingCommand
from remoting.connection import RemotingConnection
from remoting.errors import ConnectionLost
from remoting.frame import encode_prefix
from remoting.outcomes import Reply
from remoting.requests import REQUESTS
from tests.proxy.backends.cluster.servers import Cluster
from tests.proxy.messages import complete, heartbeat, java, request
from tests.proxy.replica import Client, ask_route, certify, serving, soon, stops

pytestmark = pytest.mark.anyio


async def test_client_requests_are_served(cluster: Cluster) -> None:
    broker = await cluster.broker()
    cluster.topics["orders"] = ["broker-a"]
    async with serving(cluster) as app:
        client = await Client.connect(app)
        (data,) = orjson.loads((await client.ask(ask_route())).body)["brokerDatas"]
        assert data["brokerAddrs"] == {"0": str(app.addresses[0])}
        assert (await client.ask(heartbeat("c1", {"g": ["orders"]}))).code == 0
        assert (await client.ask(complete(REQUESTS[310]))).fields == {"by": "broker-a/0"}
        assert (await client.ask(request(99))).code == 3
        assert (await client.ask(ask_route("nowhere"))).code == 17
        assert app.registry.consumer_ids("g") == {"c1"}
        await client.close()
        await broker.until(lambda server: RequestCode.UNREGISTER_CLIENT in server.codes)
        assert app.registry.consumer_ids("g") == set()
        assert app.metrics.requests.answers() == {
            ("remoting", "GET_ROUTEINFO_BY_TOPIC", 0): 1,
            ("remoting", "HEART_BEAT", 0): 1,
            ("remoting", "SEND_MESSAGE_V2", 0): 1,
            ("remoting", "unknown", 3): 1,
            ("remoting", "GET_ROUTEINFO_BY_TOPIC", 17): 1,
        }


async def test_without_a_cluster_requests_are_answered_as_unavailable(cluster: Cluster) -> None:
    async with serving(cluster) as app:
        client = await Client.connect(app)
        answer = await client.ask(complete(REQUESTS[310]))
        assert (answer.code, answer.remark) == (14, "no name server lists a broker broker-a")
        await client.close()


async def test_broker_request_reaches_the_client_and_is_answered(cluster: Cluster) -> None:
    broker = await cluster.broker()
    cluster.topics["orders"] = ["broker-a"]
    async with serving(cluster) as app:
        client = await Client.connect(app)

        def running_info(_: RemotingConnection, command: RemotingCommand) -> Reply:
            reply: Reply = asyncio.get_running_loop().create_future()
            reply.set_result(commands.success({"of": command.fields["clientId"]}))
            return reply

        client.connection.handler = running_info
        await client.ask(heartbeat("c1", {"g": ["orders"]}))
        (connection,) = broker.connections
        question = request(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId="c1")
        assert (await soon(connection.request(question, 5.0))).fields == {"of": "c1"}
        await client.close()


async def test_drain_finishes_requests_and_answers_go_away(cluster: Cluster) -> None:
    held: list[RemotingCommand] = []
    broker = await cluster.broker(answer=held.append)
    async with serving(cluster, drain_timeout=60) as app:
        (address,) = app.addresses
        client = await Client.connect(app)
        sending = client.connection.request(complete(REQUESTS[310]), 5.0)
        await broker.until(lambda server: bool(held))
        stops[app].set()
        while not app.core.drain.draining:
            await asyncio.sleep(0)
        new = await client.ask(java(ask_route(), GO_AWAY_VERSION + 1))
        assert new.code == 1500
        reply = commands.success({"finished": "yes"})
        broker.connections[0].send(commands.answer(reply, held[0].opaque, 0))
        assert (await soon(sending)).fields == {"finished": "yes"}
        await soon(client.gone.wait())
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(address.host, address.port)


async def test_drain_ends_after_its_timeout(cluster: Cluster) -> None:
    broker = await cluster.broker(answer=lambda _: None)
    async with serving(cluster, drain_timeout=0.05) as app:
        client = await Client.connect(app)
        sending = client.connection.request(complete(REQUESTS[310]), 5.0)
        await broker.until(lambda server: 310 in server.codes)
        stops[app].set()
        with pytest.raises(ConnectionLost):
            await soon(sending)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], ssl.SSLContext]:
    return certify(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize(
    ("mode", "encrypted", "plain"),
    [("permissive", True, True), ("enforcing", True, False), ("disabled", False, True)],
)
async def test_tls_is_served_on_the_same_port(
    cluster: Cluster, certificate: tuple[dict[str, Path], ssl.SSLContext], mode: str, encrypted: bool, plain: bool
) -> None:
    files, context = certificate
    await cluster.broker()
    async with serving(cluster, tls={**files, "mode": mode}) as app:
        for kind, served in ((context, encrypted), (None, plain)):
            try:
                client = await Client.connect(app, kind)
                answer = await client.ask(complete(REQUESTS[310]))
            except (OSError, ConnectionLost):
                assert not served
            else:
                assert served
                assert answer.fields == {"by": "broker-a/0"}
                await client.close()


def frame(command: RemotingCommand) -> bytes:
    return command.encode() + command.body


async def raw(app: App, data: bytes, until: Callable[[bytes], bool]) -> bytes:
    """Send bytes over a plain socket and return the response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", app.addresses[0].port)
    received = b""
    try:
        writer.write(data)
        async with asyncio.timeout(30):
            while not until(received) and (chunk := await reader.read(65536)):
                received += chunk
    except ConnectionError:
        pass
    finally:
        writer.transport.abort()
    return received


@pytest.mark.parametrize(
    ("trusted", "header", "told"),
    [
        ("127.0.0.0/8", b"PROXY TCP4 192.0.2.7 198.51.100.9 51000 9876\r\n", b"198.51.100.9:9876"),
        ("127.0.0.0/8", b"PROXY TCP6 2001:db8::7 2001:db8::9 51000 9876\r\n", b"[2001:db8::9]:9876"),
        ("10.0.0.0/8", b"PROXY TCP4 192.0.2.7 198.51.100.9 51000 9876\r\n", b""),
    ],
)
async def test_proxy_protocol_header_sets_the_clients_address(
    cluster: Cluster, trusted: str, header: bytes, told: bytes
) -> None:
    await cluster.broker()
    cluster.topics["orders"] = ["broker-a"]
    async with serving(cluster, listen={"trusted_proxies": [trusted]}) as app:
        answer = await raw(app, header + frame(ask_route()), lambda data: b"brokerDatas" in data)
        assert (told in answer) if told else answer == b""


async def test_unknown_protocol_is_rejected(cluster: Cluster) -> None:
    async with serving(cluster) as app:
        part = b"HTTP/1.1 421 "
        assert part in await raw(app, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", lambda received: part in received)


@pytest.fixture
async def busy(cluster: Cluster) -> AsyncIterator[tuple[App, Client]]:
    """Yield a proxy and a client with regular requests."""
    await cluster.broker()
    cluster.topics["orders"] = ["broker-a"]
    async with serving(cluster) as app:
        neighbour = await Client.connect(app)
        yield app, neighbour
        await neighbour.close()


def _frame(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    return encode_prefix(kind, len(header), len(body)) + header + body


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
headers = st.fixed_dictionaries(
    {},
    optional={
        "code": st.sampled_from(list(REQUESTS)) | json_values,
        "opaque": st.integers(0, 5) | json_values,
        "flag": st.integers(0, 3) | json_values,
        "version": json_values,
        "language": json_values,
        "extFields": st.dictionaries(
            st.sampled_from(sorted(set().union(*(spec.required for spec in REQUESTS.values())))),
            json_values,
            max_size=9,
        )
        | json_values,
    },
).map(orjson.dumps)
complete_requests = st.builds(
    lambda code, body: frame(commands.request(code, complete(REQUESTS[code]).fields, body)),
    st.sampled_from(list(REQUESTS)),
    st.binary(max_size=20) | json_values.map(orjson.dumps),
)
nonsense = (
    st.binary(max_size=100)
    | st.builds(_frame, headers, st.binary(max_size=30))
    | st.builds(_frame, st.binary(max_size=60), kind=st.integers(0, 1))
    | st.builds(lambda data, at: data[:at], complete_requests, st.integers(0, 200))
    | complete_requests
    | st.builds(
        lambda start, data: start + data, st.sampled_from([b"PROXY ", b"\x16\x03\x01", b"PRI * ", b"GET "]), st.binary()
    )
)


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(pieces=st.lists(nonsense, min_size=1, max_size=3))
async def test_malformed_bytes_do_not_affect_other_connections(
    busy: tuple[App, Client], caplog: pytest.LogCaptureFixture, pieces: list[bytes]
) -> None:
    app, neighbour = busy
    caplog.clear()
    _, writer = await asyncio.open_connection("127.0.0.1", app.addresses[0].port)
    for piece in pieces:
        writer.write(piece)
    for _ in range(2):
        assert (await neighbour.ask(complete(REQUESTS[310]))).fields == {"by": "broker-a/0"}
    writer.transport.abort()
    assert (await neighbour.ask(ask_route())).code == 0
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
