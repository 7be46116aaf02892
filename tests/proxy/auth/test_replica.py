"""Authentication of a whole replica with an embedded broker: both protocols, plain and over TLS."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import (
    ClientType,
    Code,
    Publishing,
    Resource,
)
from protos.apache.rocketmq.v2.definition_pb2 import (
    Settings as ClientSettings,
)
from remoting.codes import RequestCode
from tests.cluster.client import Client as BrokerClient
from tests.cluster.client import lists, wait_until
from tests.ports import free_port
from tests.proxy.auth.replica import CREATE, NO_PERMISSION, dialled, replica
from tests.proxy.auth.requests import command
from tests.proxy.auth.rpcs import GrpcClient, rpcs, subscription
from tests.proxy.auth.users import (
    ALICE,
    BOB,
    IMPOSTOR,
    OWN_FILE,
    ROOT,
    STRANGER,
    signed,
    write,
)
from tests.proxy.messages import heartbeat, request
from tests.proxy.replica import Client, certify, soon
from tests.waiting import until

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("source", ["users", "plain_acl"])
async def test_remoting_clients(tmp_path: Path, source: str) -> None:
    async with replica(tmp_path, source) as app:
        client = await Client.connect(app)
        pull = command(RequestCode.PULL_MESSAGE, suspendTimeoutMillis="0")
        for credentials, code in ((None, NO_PERMISSION), (STRANGER, NO_PERMISSION), (IMPOSTOR, NO_PERMISSION)):
            reply = await client.ask(signed(command(RequestCode.GET_ROUTEINFO_BY_TOPIC), credentials))
            assert (reply.code, reply.remark) == (
                code,
                "authentication failed: this listener needs valid credentials",
            )
        assert (await client.ask(signed(command(RequestCode.GET_ROUTEINFO_BY_TOPIC), BOB))).code == NO_PERMISSION
        assert (await client.ask(signed(command(RequestCode.GET_ROUTEINFO_BY_TOPIC), ALICE))).code == 0
        assert (await client.ask(signed(heartbeat("c1", {"g": ["orders"]}), ALICE))).code == 0
        assert (await client.ask(signed(heartbeat("c1", {"g": ["secret"]}), ALICE))).code == NO_PERMISSION
        assert (await client.ask(signed(pull.copy(), BOB))).code == NO_PERMISSION
        refused = await client.ask(signed(request(RequestCode.UPDATE_AND_CREATE_TOPIC, **CREATE), ALICE))
        assert refused.code == NO_PERMISSION
        # A signature is for one body and one set of fields.
        changed = signed(command(RequestCode.GET_MAX_OFFSET), ALICE)
        changed.fields["queueId"] = "1"
        assert (await client.ask(changed)).code == NO_PERMISSION
        await client.close()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("source", ["users", "plain_acl"])
async def test_grpc_clients(tmp_path: Path, source: str, tls: bool) -> None:
    more: dict[str, Any] = {}
    if tls:
        more["tls"], _ = certify(tmp_path)
    denied = (Code.UNAUTHORIZED, Code.FORBIDDEN)
    async with replica(tmp_path, source, **more) as app, dialled(app, tmp_path if tls else None) as channel:
        for name, message in rpcs().items():
            for credentials in (None, STRANGER, IMPOSTOR):
                assert await GrpcClient(channel, credentials).call(name, message) == Code.UNAUTHORIZED, name
            assert await GrpcClient(channel, BOB).call(name, message) == Code.FORBIDDEN, name
            if name not in ("ReceiveMessage", "PullMessage"):
                assert await GrpcClient(channel, ALICE).call(name, message) not in denied, name
        for name, message in rpcs(Resource(name="secret"), Resource(name="other")).items():
            assert await GrpcClient(channel, ALICE).call(name, message) == Code.FORBIDDEN, name
        send = rpcs()["SendMessage"]
        assert await GrpcClient(channel, ALICE).call("SendMessage", send) == Code.OK
        receive = rpcs()["ReceiveMessage"]
        receive.invisible_duration.seconds = 30
        assert await GrpcClient(channel, ALICE).call("ReceiveMessage", receive) == Code.OK


async def test_telemetry_streams_and_settings(tmp_path: Path) -> None:
    async with replica(tmp_path) as app, dialled(app) as channel:
        for credentials, command, code in (
            (None, None, grpc.StatusCode.UNAUTHENTICATED),
            (IMPOSTOR, None, grpc.StatusCode.UNAUTHENTICATED),
            (BOB, subscription(), grpc.StatusCode.PERMISSION_DENIED),
            (ALICE, subscription("secret"), grpc.StatusCode.PERMISSION_DENIED),
            (
                ALICE,
                pb.TelemetryCommand(
                    settings=ClientSettings(
                        client_type=ClientType.PRODUCER, publishing=Publishing(topics=[Resource(name="secret")])
                    )
                ),
                grpc.StatusCode.PERMISSION_DENIED,
            ),
        ):
            client = GrpcClient(channel, credentials)
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await client.telemetry(command)
            assert raised.value.code() is code
        assert not [client for client in app.grpc.clients if client.settings is not None]
        client = GrpcClient(channel, ALICE)
        stream = client.stub.Telemetry(metadata=client.metadata)
        await stream.write(subscription())
        assert (await soon(stream.read())).HasField("settings")
        stream.cancel()


async def test_the_same_client_id_of_another_user_is_another_client(tmp_path: Path) -> None:
    async with replica(tmp_path) as app, dialled(app) as channel:
        for credentials in (ALICE, ROOT):
            assert await GrpcClient(channel, credentials).call("SendMessage", rpcs()["SendMessage"]) == Code.OK
        assert {(client.client_id, client.user) for client in app.grpc.clients} == {
            ("c1", "alice-1"),
            ("c1", "root-01"),
        }
        await GrpcClient(channel, ROOT).call("NotifyClientTermination", pb.NotifyClientTerminationRequest())
        assert {client.user for client in app.grpc.clients} == {"alice-1"}


async def test_unauthenticated_rpcs_leave_no_client_behind(tmp_path: Path) -> None:
    async with replica(tmp_path) as app, dialled(app) as channel:
        for number in range(20):
            await GrpcClient(channel, STRANGER, f"c{number}").call("QueryRoute", rpcs()["QueryRoute"])
        assert len(app.grpc.clients) == 0


async def test_a_revoked_permission_ends_polls_streams_and_memberships(tmp_path: Path) -> None:
    async with replica(tmp_path) as app, dialled(app) as channel:
        remoting = await Client.connect(app)
        assert (await remoting.ask(signed(heartbeat("r1", {"g": ["orders"]}), ALICE))).code == 0
        poller = await Client.connect(app)
        pull = command(
            RequestCode.PULL_MESSAGE, suspendTimeoutMillis="20000", sysFlag="2", queueOffset="0", maxMsgNums="1"
        )
        polling = asyncio.ensure_future(poller.ask(signed(pull, ALICE)))
        client = GrpcClient(channel, ALICE)
        stream = client.stub.Telemetry(metadata=client.metadata)
        await stream.write(subscription())
        assert (await soon(stream.read())).HasField("settings")
        receive = rpcs()["ReceiveMessage"]
        receive.invisible_duration.seconds = 30
        receive.long_polling_timeout.seconds = 20
        receiving = asyncio.ensure_future(client.call("ReceiveMessage", receive))
        await until(lambda: sum(len(context.channel.session.polls) for context in app.core.in_flight) == 2)
        file = tmp_path / "users.txt"
        file.write_text(OWN_FILE.replace('["Pub", "Sub"]', '["Pub"]'))
        assert (await soon(polling)).code == NO_PERMISSION
        assert await soon(receiving) == Code.FORBIDDEN
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await soon(stream.read())
        assert raised.value.code() is grpc.StatusCode.PERMISSION_DENIED
        await soon(remoting.gone.wait())
        await until(lambda: not app.registry.consumer_ids("g"))
        await poller.close()


async def test_a_member_leaves_when_a_group_is_revoked_that_its_last_heartbeat_does_not_name(tmp_path: Path) -> None:
    both, one = '"Group:g", "Group:other"', '"Group:other"'
    async with replica(tmp_path) as app, dialled(app) as channel:
        file = write(tmp_path / "users.txt", OWN_FILE.replace('"Group:g"', both))
        await until(lambda: app.authority is not None and app.authority.epoch)
        leaving, staying = await Client.connect(app), await Client.connect(app)
        for client, groups in ((leaving, ("g", "other")), (staying, ("other",))):
            for group in groups:
                beat = heartbeat(f"r{len(groups)}", {group: ["orders"]})
                assert (await client.ask(signed(beat, ALICE))).code == 0
        # Without settings: the client's group is that of its heartbeats.
        caller = GrpcClient(channel, ALICE)
        receive = rpcs()["ReceiveMessage"]
        receive.invisible_duration.seconds = 30
        assert await caller.call("SendMessage", rpcs()["SendMessage"]) == Code.OK
        assert await caller.call("ReceiveMessage", receive) == Code.OK
        assert await caller.call("Heartbeat", rpcs()["Heartbeat"]) == Code.OK
        assert app.registry.consumer_ids("g") == {"r2", "c1"}
        file.write_text(OWN_FILE.replace('"Group:g"', one))
        await soon(leaving.gone.wait())
        await until(lambda: not app.registry.consumer_ids("g"))
        assert app.registry.consumer_ids("other") == {"r1"}
        await staying.close()


async def test_remoting_over_tls(tmp_path: Path) -> None:
    files, context = certify(tmp_path)
    async with replica(tmp_path, tls=files) as app:
        client = await Client.connect(app, context)
        assert (await client.ask(signed(command(RequestCode.GET_ROUTEINFO_BY_TOPIC), ALICE))).code == 0
        assert (await client.ask(command(RequestCode.GET_ROUTEINFO_BY_TOPIC))).code == NO_PERMISSION
        await client.close()


async def test_the_embedded_brokers_own_listener(tmp_path: Path) -> None:
    broker = f"127.0.0.1:{free_port()}"
    async with (
        replica(tmp_path, embedded={"directory": tmp_path / "data", "listen": broker}),
        BrokerClient(broker) as client,
    ):
        for code in (RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_ALL_TOPIC_CONFIG):
            for credentials in (None, STRANGER, IMPOSTOR, BOB):
                sent = signed(command(code), credentials)
                assert (await client.ask(code, dict(sent.fields))).code == NO_PERMISSION
            assert (await client.ask(code, dict(signed(command(code), ROOT).fields))).code == 0


async def test_a_revoked_permission_ends_memberships_at_the_embedded_brokers_own_listener(tmp_path: Path) -> None:
    """Other clients of the connection, which may be that of another replica, stay in their groups."""
    broker, both = f"127.0.0.1:{free_port()}", '"Group:g", "Group:other"'
    async with replica(tmp_path, embedded={"directory": tmp_path / "data", "listen": broker}) as app:
        file = write(tmp_path / "users.txt", OWN_FILE.replace('"Group:g"', both))
        await until(lambda: app.authority is not None and app.authority.epoch)
        async with BrokerClient(broker, "c1", credentials=ALICE) as leaving, BrokerClient(broker) as admin:
            admin.credentials = ROOT
            await leaving.heartbeat({"g": ["orders"], "other": ["orders"]})
            await admin.heartbeat({"g": ["orders"]})
            assert await admin.consumers("g") == sorted(["c1", admin.client_id])
            write(file, OWN_FILE.replace('"Group:g"', '"Group:other"'))
            await wait_until(lists(admin, "g", admin.client_id), timeout=10.0)
            assert (await admin.consumers("other"), leaving.closed) == (["c1"], False)


async def test_traffic_rules_match_users(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\nname = "no-root"\nkind = "deny"\nmatch = { users = ["root-*"] }\n')
    async with replica(tmp_path, rules={"file": rules}) as app, dialled(app) as channel:
        client = await Client.connect(app)
        pull = command(RequestCode.PULL_MESSAGE, suspendTimeoutMillis="0", sysFlag="2", bname="")
        assert (await client.ask(signed(pull, ROOT))).code == NO_PERMISSION
        assert (await client.ask(signed(pull, ALICE))).code != NO_PERMISSION
        await client.close()
        send = rpcs()["SendMessage"]
        assert await GrpcClient(channel, ROOT).call("SendMessage", send) == Code.FORBIDDEN
        assert await GrpcClient(channel, ALICE).call("SendMessage", send) == Code.OK


async def test_failures_are_delayed_more_and_more(tmp_path: Path) -> None:
    async with replica(tmp_path) as app:
        assert app.authority is not None
        delays = iter([0.0, 0.05])
        app.authority.failures.fail = lambda host: next(delays)  # type: ignore[method-assign]
        client = await Client.connect(app)
        for _ in range(2):
            assert (await client.ask(command(RequestCode.GET_ROUTEINFO_BY_TOPIC))).code == NO_PERMISSION
        assert next(delays, None) is None
        await client.close()
