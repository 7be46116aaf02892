"""Gantry before brokers with access control: everything works with its own credentials and those of the clients."""

from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from itertools import chain
from pathlib import Path

import anyio
import anyio.to_thread
import orjson
import pytest

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2 import service_pb2 as pb
from remoting import acl, fastjson
from remoting.acl import UserInfo, UserStatus, UserType
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.signature import Credentials
from tests.cluster.acl import (
    ADMIN,
    ALICE,
    BOB,
    IDENTITY,
    INNER,
    authorization,
    broker_client,
    client_of,
    new_topic,
    put_acl,
    run_clients,
    secured_cluster,
)
from tests.cluster.client import (
    Client,
    create_topic,
    described,
    heartbeat,
    json,
    lists,
    message_queue,
    queue_fields,
    send_fields,
    unique,
    v2,
    wait_until,
)
from tests.cluster.coverage import covers
from tests.cluster.grpc.consumer import Consumer, codes
from tests.cluster.grpc.replica import RENEWAL, Product
from tests.cluster.reports import figure
from tests.cluster.servers import Cluster, Failed, Gantry, eventually, serving
from tests.cpu_use import CpuUse
from tests.proxy.tools.cli.access_walk import walk
from tests.proxy.tools.cli.shell import Done, Shell

pytestmark = [pytest.mark.cluster, pytest.mark.anyio, pytest.mark.timeout(240, func_only=True)]

_BROKERS = ("broker-a", "broker-b")
_LIKE_CONSUMER_GROUP = "\ua51e\uc0ad\u85b7\ua8b7\u9658\u15dd\ubf42\u290d\u6a26\u5fbb\u9c26\u4a4c\u4005"
# Seconds after which a revoked permission is denied.
_REVOCATION_LIMIT = 5.0


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with secured_cluster(tmp_path_factory) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def gantry(secured: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gantry]:
    with Gantry(tmp_path_factory.mktemp("gantry"), secured.namesrv, IDENTITY) as gantry:
        yield gantry


@pytest.fixture(scope="module")
def judging(secured: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gantry]:
    """A replica that authenticates clients itself, by the brokers' users."""
    config = IDENTITY + "[auth]\nbrokers = true\n"
    with Gantry(tmp_path_factory.mktemp("judging"), secured.namesrv, config) as gantry:
        yield gantry


@pytest.fixture(scope="module")
def managing(secured: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gantry]:
    """A replica through which tools may change users."""
    config = 'tools = "all"\n' + IDENTITY + "[auth]\nbrokers = true\n"
    with Gantry(tmp_path_factory.mktemp("managing"), secured.namesrv, config) as gantry:
        yield gantry


# The credentials of clients.


@pytest.mark.parametrize(
    ("user", "remark"),
    [
        (None, "username cannot be null"),
        (Credentials("nobody", "x"), "User:nobody is not found"),
        (Credentials(ALICE.access_key, "wrong"), "check signature failed"),
        (BOB, "User:bob has no permission"),
    ],
    ids=["no credential", "unknown user", "wrong secret", "no permission"],
)
async def test_requests_without_permission_are_denied(
    secured: Cluster, gantry: Gantry, user: Credentials | None, remark: str
) -> None:
    topic, group = await new_topic(secured, "denied"), unique("group")
    async with client_of(gantry, user) as client, broker_client(secured) as admin:
        replies = [
            await client.ask(RequestCode.SEND_MESSAGE_V2, v2(client.named(send_fields(topic))), b"x"),
            await client.ask(RequestCode.GET_MAX_OFFSET, queue_fields(topic)),
            await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}),
            await client.ask(
                RequestCode.HEART_BEAT,
                body=orjson.dumps(
                    {
                        "clientID": client.client_id,
                        "producerDataSet": [],
                        "consumerDataSet": [
                            {"groupName": group, "subscriptionDataSet": [{"topic": topic, "subString": "*"}]}
                        ],
                    }
                ),
            ),
        ]
        for reply in replies:
            assert reply.code == ResponseCode.NO_PERMISSION, described(reply)
            assert remark in (reply.remark or "")
        assert await admin.consumers(group) == []
    async with client_of(gantry) as alice:
        assert await alice.consumers(group) == [], "a denied client is no member here either"


_GO = ("go-remoting", "go-grpc")
_CLIENTS = ("java-remoting", "java-grpc", *_GO)


async def test_official_clients(secured: Cluster, judging: Gantry) -> None:
    """Send and receive with credentials; fail with a wrong secret, and without permission."""
    # The Go client names no broker, so that each topic has only one.
    topics = {name: await create_topic(secured.broker, name, 2, credentials=ADMIN) for name in _CLIENTS}
    checked = await create_topic(secured.broker, "checked", 1, "TRANSACTION", ADMIN)

    def words(name: str, action: str, topic: str, count: int, *more: str) -> tuple[str, ...]:
        return (name, action, str(count), "--topic", topic, "--group", f"g-{topic}", *more)

    runs = [(ALICE, words(name, "roundtrip", topic, 6)) for name, topic in topics.items()]
    runs.append((ALICE, words("go-grpc", "roundtrip", checked, 3, "--kind", "transaction-check")))
    wrong = Credentials(ALICE.access_key, "wrong")
    denied = [(user, words(name, "produce", topics[name], 1)) for name in _GO for user in (wrong, BOB)]
    results = await anyio.to_thread.run_sync(run_clients, judging, [*runs, *denied])
    for (_, arguments), (status, output) in zip(runs, results, strict=False):
        assert status == 0, f"{arguments}: {output}"
    for (_, arguments), (status, output) in zip(denied, results[len(runs) :], strict=True):
        assert status != 0, f"{arguments}: {output}"
        # The remoting client reports a denied route as a missing one.
        assert any(text in output for text in ("CODE: 16", "not found", "UNAUTHORIZED", "FORBIDDEN")), output


# Requests of Gantry itself.


async def test_crashed_client_is_unregistered(secured: Cluster, gantry: Gantry) -> None:
    topic, group = await new_topic(secured, "crash"), unique("group")
    async with broker_client(secured) as admin:
        async with client_of(gantry) as client:
            await client.heartbeat({group: [topic]})
            assert await admin.consumers(group) == [client.client_id]
            client.abort()
        await wait_until(lists(admin, group), "the crashed client being gone")


async def test_locks_are_split_by_broker(secured: Cluster, gantry: Gantry) -> None:
    topic, group = await new_topic(secured, "locks", 2), unique("group")
    queues = [message_queue(topic, number, broker) for broker in _BROKERS for number in range(2)]
    async with client_of(gantry) as client:
        await client.route(topic)
        body = orjson.dumps({"consumerGroup": group, "clientId": client.client_id, "mqSet": queues})
        # The brokers have not accepted a heartbeat: Gantry must not vouch for the client.
        denied = await client.ask(RequestCode.LOCK_BATCH_MQ, {}, body)
        assert "lockOKMQSet" not in denied.body.decode(), described(denied)
        await client.heartbeat({group: [topic]})
        granted = json(await client.get(RequestCode.LOCK_BATCH_MQ, {}, body))["lockOKMQSet"]
        assert sorted((q["brokerName"], q["queueId"]) for q in granted) == [(b, n) for b in _BROKERS for n in range(2)]


async def test_unknown_user_is_no_member(secured: Cluster, gantry: Gantry) -> None:
    """Its heartbeat names a topic that no broker has. Other requests follow at once."""
    topic, group, left = await new_topic(secured, "mine"), unique("group"), unique("left")
    queues = [message_queue(topic, 0, broker) for broker in _BROKERS]
    async with client_of(gantry) as alice, client_of(gantry, Credentials("nobody", "x")) as stranger:
        await alice.route(topic)
        await alice.heartbeat({group: [topic]})
        locks = {
            client: orjson.dumps({"consumerGroup": group, "clientId": client.client_id, "mqSet": queues})
            for client in (alice, stranger)
        }
        await alice.get(RequestCode.LOCK_BATCH_MQ, {}, locks[alice])
        body = heartbeat(stranger.client_id, {group: ["no-such-topic"], left: ["no-such-topic"]}, [])
        fields = {"clientID": stranger.client_id, "consumerGroup": left}
        replies = [
            stranger.begin(RequestCode.HEART_BEAT, body=body),
            stranger.begin(RequestCode.UNLOCK_BATCH_MQ, {}, locks[alice]),
            stranger.begin(RequestCode.LOCK_BATCH_MQ, {}, locks[stranger]),
            stranger.begin(RequestCode.UNREGISTER_CLIENT, fields),
        ]
        beaten, unlocked, locked, _ = [await reply for reply in replies]
        assert ResponseCode.SUCCESS not in (beaten.code, unlocked.code), (described(beaten), described(unlocked))
        assert "lockOKMQSet" not in locked.body.decode(), described(locked)
        assert await alice.consumers(group) == [alice.client_id]
        async with broker_client(secured) as admin:
            assert await admin.consumers(group) == [alice.client_id]


async def test_left_group_and_restarted_broker(secured: Cluster, gantry: Gantry) -> None:
    """The heartbeat of a client that has left a group is Gantry's; a restarted broker gets it, and the others'."""
    topic, kept, left = await new_topic(secured, "again"), unique("kept"), unique("left")
    async with client_of(gantry) as one, client_of(gantry) as two:
        await one.heartbeat({kept: [topic], left: [topic]})
        await two.heartbeat({kept: [topic]})
        await one.get(RequestCode.UNREGISTER_CLIENT, {"clientID": one.client_id, "consumerGroup": left})
        await anyio.to_thread.run_sync(secured.kill, "broker-b")
        await anyio.to_thread.run_sync(secured.restart, "broker-b")
        async with broker_client(secured, "broker-b") as admin:
            await wait_until(lists(admin, kept, one.client_id, two.client_id), "both being members again")
            assert await admin.consumers(left) == []


async def test_message_sent_back_is_redelivered(secured: Cluster, gantry: Gantry) -> None:
    topic, group = await new_topic(secured, "back"), unique("group")
    async with client_of(gantry) as client:
        await client.heartbeat({group: [topic, f"%RETRY%{group}"]})
        await client.send(topic, b"again")
        [message] = await client.pull(topic, group)
        back = {
            "offset": message.commit_log_offset,
            "group": group,
            "delayLevel": 1,
            "originTopic": topic,
            "unitMode": False,
        }
        await client.get(RequestCode.CONSUMER_SEND_MSG_BACK, client.named(back))

        async def redelivered() -> bool:
            return [found.body for found in await client.pull(f"%RETRY%{group}", group)] == [b"again"]

        await wait_until(redelivered, "the redelivery")


async def test_grpc_messages_are_renewed(secured: Cluster, tmp_path: Path) -> None:
    topic, product = await new_topic(secured, "renewed"), Product(tmp_path, "inprocess")
    async with (
        serving(Gantry(tmp_path, secured.namesrv, product.config + IDENTITY)) as gantry,
        Consumer(gantry.address, unique("group"), topic) as consumer,
    ):
        await consumer.receive(wait=0.1)
        await consumer.send(b"0")
        [message] = await consumer.receive_all(1, auto_renew=True)
        assert await consumer.receive(wait=RENEWAL + 6) == []
        assert codes(await consumer.ack(message)) == [d.Code.OK] * 2


async def test_memberships_are_announced_on_the_sync_topic(secured: Cluster, gantry: Gantry) -> None:
    """Other proxies read there; the topic is created, written to and read with Gantry's credentials."""
    sync, group = "DefaultHeartBeatSyncerTopic", unique("group")
    async with client_of(gantry) as member, AsyncExitStack() as stack:
        readers = [
            await stack.enter_async_context(Client(secured.addresses[name], broker=broker, credentials=ADMIN))
            for name, broker in (("broker", "broker-a"), ("broker-b", "broker-b"))
        ]

        async def announced() -> bool:
            try:
                found = [
                    message for reader in readers for message in await reader.pull(sync, unique("reader"), wait=100)
                ]
            except AssertionError as error:
                # The first announcement creates the topic.
                if "not exist" not in str(error):
                    raise
                return False
            return any(group.encode() in message.body for message in found)

        await member.heartbeat({group: []})
        await wait_until(announced, "the announcement")
    failures = [line for line in gantry.log.read_text().splitlines() if f"topic {sync} from broker" in line]
    # Other tests restart a broker.
    restarts = ("can be reached now", "no name server lists", "connection", "has no live replica now")
    assert [line for line in failures if not any(text in line for text in restarts)] == []


async def test_wrong_credentials_are_reported(secured: Cluster, tmp_path: Path) -> None:
    config = IDENTITY.replace(INNER.secret_key, "wrong")
    with Gantry(tmp_path, secured.namesrv, config) as gantry:
        await eventually(lambda: "denies Gantry's own requests" in gantry.log.read_text(), "the log line")
        assert "wrong" not in gantry.log.read_text()


# The judge of the clients.


async def test_gantry_signs_for_its_clients_in_mode_check(
    secured: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = IDENTITY + 'client_signatures = "check"\n'
    topic = await new_topic(secured, "check")
    with Gantry(tmp_path_factory.mktemp("check"), secured.namesrv, config) as gantry:
        async with client_of(gantry) as client:
            await client.send(topic, b"x", {"KEYS": "k"})
            [message] = await client.pull(topic, unique("group"))
            assert f"__BORNHOST\x01{client.local_address}" in message.properties


async def test_a_key_with_the_hash_of_another_hides_no_group(
    secured: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The key was computed; brokers read it as consumerGroup."""
    mallory = Credentials("mallory", "mallory-secret-1")
    await anyio.to_thread.run_sync(
        secured.user, mallory.access_key, mallory.secret_key, "Topic:own=Sub", "Group:own=Sub"
    )
    group, config = unique("group"), IDENTITY + 'client_signatures = "check"\n[auth]\nbrokers = true\n'
    with Gantry(tmp_path_factory.mktemp("hashes"), secured.namesrv, config) as gantry:
        async with client_of(gantry, mallory) as client, broker_client(secured) as admin:

            async def lock(**more: str) -> RemotingCommand:
                queues = [message_queue("own", 0)]
                body = {"consumerGroup": "own", **more, "clientId": client.client_id, "mqSet": queues}
                return await client.ask(RequestCode.LOCK_BATCH_MQ, {}, orjson.dumps(body))

            async def known() -> bool:
                return (await lock()).code == ResponseCode.SUCCESS

            await wait_until(known, "the user and its permission")
            forged = await lock(**{_LIKE_CONSUMER_GROUP: group})
            assert forged.code == ResponseCode.INVALID_PARAMETER, described(forged)
            body = {"consumerGroup": group, "clientId": "another", "mqSet": [message_queue("own", 0)]}
            reply = await admin.get(RequestCode.LOCK_BATCH_MQ, {}, orjson.dumps(body))
            assert json(reply)["lockOKMQSet"], "nobody else has the lock"


@pytest.mark.parametrize("judge", ["brokers", "gantry"])
async def test_revoked_permission_is_denied_within_seconds(
    secured: Cluster, gantry: Gantry, judging: Gantry, judge: str
) -> None:
    carol = Credentials(f"carol-{judge}", "carol-secret-1")
    topic = await new_topic(secured, "revoked")
    await anyio.to_thread.run_sync(secured.user, carol.access_key, carol.secret_key, f"Topic:{topic}=Pub")
    async with (
        client_of(gantry if judge == "brokers" else judging, carol) as client,
        Consumer(judging.address, unique("group"), topic) as grpc_client,
    ):
        grpc_client.metadata = (*grpc_client.metadata, *authorization(carol))

        async def remoting() -> bool:
            fields = v2(client.named(send_fields(topic)))
            return (await client.ask(RequestCode.SEND_MESSAGE_V2, fields, b"x")).code == ResponseCode.SUCCESS

        async def over_grpc() -> bool:
            message = d.Message(
                topic=grpc_client.topic, body=b"x", system_properties=d.SystemProperties(message_id=unique("01"))
            )
            response = await grpc_client.call("SendMessage", pb.SendMessageRequest(messages=[message]))
            assert response.status.code in (d.Code.OK, d.Code.FORBIDDEN, d.Code.UNAUTHORIZED), response
            return bool(response.status.code == d.Code.OK)

        for protocol, permitted in {"remoting": remoting, "grpc": over_grpc}.items():
            if judge == "brokers" and protocol == "grpc":
                continue
            # Users are new to Gantry, too.
            await wait_until(permitted, "the permission")
            used = CpuUse(gantry.pid, judging.pid, *secured.pids)
            await put_acl(secured, carol.access_key, topic, "Deny")

            async def denied() -> bool:
                return not await permitted()  # noqa: B023  # used in this iteration only

            await wait_until(denied, "the denial")
            took = used.seconds
            assert took < used.lengthen(_REVOCATION_LIMIT)
            figure(f"a permission revoked at the brokers is denied by {judge} over {protocol} after {took:.2f} s")
            await put_acl(secured, carol.access_key, topic, "Allow")


# Users and ACLs through the access point.


@covers(RequestCode.GET_BROKER_CLUSTER_INFO, *(code for code in RequestCode if code.name.startswith("AUTH_")))
async def test_changes_of_users_and_acls_reach_every_broker(secured: Cluster, managing: Gantry) -> None:
    name = unique("dave")
    acl_of_dave = {"subject": f"User:{name}"}

    def user(status: UserStatus) -> bytes:
        return acl.encode(UserInfo(name, "secret-of-dave", UserType.NORMAL, status).to_json())

    def grant(*actions: str) -> bytes:
        entry = acl.PolicyEntry(f"Topic:{name}", actions, acl.Decision.ALLOW, ())
        return acl.encode(acl.AclInfo(acl_of_dave["subject"], {acl.PolicyType.CUSTOM: (entry,)}).to_json())

    async with (
        client_of(managing, ADMIN) as client,
        broker_client(secured, "broker") as first,
        broker_client(secured, "broker-b") as second,
    ):
        found = await client.get(RequestCode.GET_BROKER_CLUSTER_INFO)
        assert fastjson.loads(found.body)["brokerAddrTable"].keys() == {"broker-a", "broker-b"}
        await client.get(RequestCode.AUTH_CREATE_USER, {"username": name}, user(UserStatus.ENABLE))
        await client.get(RequestCode.AUTH_UPDATE_USER, {"username": name}, user(UserStatus.DISABLE))
        await client.get(RequestCode.AUTH_CREATE_ACL, acl_of_dave, grant("Pub"))
        await client.get(RequestCode.AUTH_UPDATE_ACL, acl_of_dave, grant("Pub", "Sub"))
        for place in (client, first, second):
            assert json(await place.get(RequestCode.AUTH_GET_USER, {"username": name}))["userStatus"] == "disable"
            (listed,) = orjson.loads((await place.get(RequestCode.AUTH_LIST_USER, {"filter": name})).body)
            assert listed["username"] == name
            kept = json(await place.get(RequestCode.AUTH_GET_ACL, acl_of_dave))
            assert set(kept["policies"][0]["entries"][0]["actions"]) == {"Pub", "Sub"}
            assert len(orjson.loads((await place.get(RequestCode.AUTH_LIST_ACL, {"subjectFilter": name})).body)) == 1
        await client.get(
            RequestCode.AUTH_DELETE_ACL, {**acl_of_dave, "policyType": "Custom", "resource": f"Topic:{name}"}
        )
        await client.get(RequestCode.AUTH_DELETE_USER, {"username": name})
        for place in (client, first, second):
            assert not (await place.get(RequestCode.AUTH_GET_USER, {"username": name})).body


@pytest.mark.timeout(420, func_only=True)
async def test_mqadmin_manages_users_and_acls_through_the_port(secured: Cluster, managing: Gantry) -> None:
    """Each command of mqadmin 5.4, which finds the brokers by the list of the access point.

    A command is repeated until it has its effect: the tool's limit of three seconds includes its own start.
    """
    carol, secret, topic = unique("mqadmin"), "secret-of-carol", unique("orders")
    cluster = ("-n", managing.address, "-c", "DefaultCluster")
    policy = ("-s", f"User:{carol}", "-r", f"Topic:{topic}", "-d", "Allow")

    async def mqadmin(command: str, *words: str) -> str:
        return await anyio.to_thread.run_sync(secured.admin, command, *cluster, *words)

    async def state(broker: str) -> tuple[str, str, list[str]] | None:
        """Return password, status and actions of the user's only policy, as one broker has them."""
        async with broker_client(secured, broker) as client:
            user = await client.get(RequestCode.AUTH_GET_USER, {"username": carol})
            acl = await client.get(RequestCode.AUTH_LIST_ACL, {"subjectFilter": carol})
        if not user.body:
            return None
        entries = [entry for info in orjson.loads(acl.body or b"[]") for entry in info["policies"][0]["entries"]]
        assert [entry["resource"] for entry in entries] in ([], [f"Topic:{topic}"])
        return json(user)["password"], json(user)["userStatus"], sorted(chain(*(item["actions"] for item in entries)))

    async def changes(expected: tuple[str, str, list[str]] | None, *words: str) -> None:
        """Run a command until both brokers have this state."""

        output = ""

        async def done() -> bool:
            nonlocal output
            output = await mqadmin(*words)
            return [await state(broker) for broker in ("broker", "broker-b")] == [expected, expected]

        with suppress(Failed):
            await wait_until(done, words[0], 120)
        assert await state("broker") == await state("broker-b") == expected, output

    async def prints(text: str, *words: str) -> None:
        async def printed() -> bool:
            return text in await mqadmin(*words)

        await wait_until(printed, f"the output of {words[0]}", 120)

    await changes((secret, "enable", []), "createUser", "-u", carol, "-p", secret)
    await changes((secret, "enable", ["Pub"]), "createAcl", *policy, "-a", "Pub")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(prints, carol, "getUser", "-u", carol)
        tasks.start_soon(prints, carol, "listUser", "-f", carol)
        tasks.start_soon(prints, f"Topic:{topic}", "getAcl", "-s", f"User:{carol}")
        tasks.start_soon(prints, f"Topic:{topic}", "listAcl", "-s", carol)
    await changes((secret, "disable", ["Pub"]), "updateUser", "-u", carol, "-s", "disable")
    await changes((secret, "disable", ["Pub", "Sub"]), "updateAcl", *policy, "-a", "Pub,Sub")
    await changes((secret, "disable", []), "deleteAcl", "-s", f"User:{carol}", "-r", f"Topic:{topic}")
    await changes(None, "deleteUser", "-u", carol)


def test_the_command_line_manages_users_and_acls_of_brokers(managing: Gantry, tmp_path: Path) -> None:
    credentials = {"GANTRY_ACCESS_KEY": ADMIN.access_key, "GANTRY_SECRET_KEY": ADMIN.secret_key}

    def run(*words: object) -> Done:
        return Shell(managing.address).run(*words, env=credentials)

    walk(run, tmp_path)


async def test_users_are_managed_by_super_users_only(managing: Gantry) -> None:
    for user in (None, ALICE, BOB):
        async with client_of(managing, user) as client:
            for code in (RequestCode.AUTH_LIST_USER, RequestCode.AUTH_LIST_ACL, RequestCode.AUTH_DELETE_USER):
                reply = await client.ask(code, {"username": "alice"})
                assert reply.code == ResponseCode.NO_PERMISSION, described(reply)
