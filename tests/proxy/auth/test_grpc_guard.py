import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpc_gateway.permissions import RPC_PERMISSIONS, Unauthorized, settings_permissions
from protos.apache.rocketmq.v2 import service_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import (
    Message,
    MessageQueue,
    Publishing,
    Resource,
    Settings,
    Subscription,
    SubscriptionEntry,
)
from proxy.auth.authority import Forbidden
from proxy.auth.grpc_guard import GrpcGuard, parse, signed_times
from proxy.core.principal import Method, Principal
from remoting.signature import Credentials
from tests.proxy.auth.users import (
    ALICE,
    BOB,
    IMPOSTOR,
    ROOT,
    STRANGER,
    FakeTokens,
    authority,
    date_text,
    grpc_metadata,
    guard,
)
from tests.proxy.fakes import peer

pytestmark = pytest.mark.anyio

METHODS = pb.DESCRIPTOR.services_by_name["MessagingService"].methods
TOPIC, GROUP = Resource(name="orders"), Resource(name="g")
HOUR = 3600.0


def message(kind: str, topic: Resource = TOPIC, group: Resource = GROUP) -> Any:
    """A request of this kind about the topic and the group."""
    fields: dict[str, Any] = {
        "topic": topic,
        "group": group,
        "message_queue": MessageQueue(topic=topic),
        "messages": [Message(topic=topic)],
    }
    made = getattr(pb, kind)
    names = {field.name for field in made.DESCRIPTOR.fields}
    return made(**{name: value for name, value in fields.items() if name in names})


def sender(made: GrpcGuard, metadata: dict[str, str]) -> Principal:
    return made.authenticate(metadata, peer(), "QueryRoute")


def test_every_rpc_has_an_entry() -> None:
    assert RPC_PERMISSIONS.keys() == {method.name for method in METHODS}
    unrestricted = {
        method.name for method in METHODS if not list(RPC_PERMISSIONS[method.name](message(method.input_type.name)))
    }
    assert unrestricted == {"NotifyClientTermination", "Telemetry"}


@pytest.mark.parametrize("method", [method for method in METHODS if method.name not in ("Telemetry",)])
def test_every_rpc_with_every_kind_of_credential(tmp_path: Path, method: Any) -> None:
    made = guard(authority(tmp_path))
    request = message(method.input_type.name)

    def call(metadata: dict[str, str]) -> None:
        principal = made.authenticate(metadata, peer(), method.name)
        made.require(principal, RPC_PERMISSIONS[method.name](request), peer(), method.name)

    for metadata in ({}, grpc_metadata(STRANGER), grpc_metadata(IMPOSTOR), grpc_metadata(ALICE, time.time() - 400)):
        with pytest.raises(Unauthorized, match="authentication failed"):
            call(metadata)
    call(grpc_metadata(ALICE))
    call(grpc_metadata(ROOT))
    if method.name != "NotifyClientTermination":
        with pytest.raises(Forbidden, match="bob-0001"):
            call(grpc_metadata(BOB))
        for kind in ("topic", "group"):
            request = message(method.input_type.name, **{kind: Resource(name="secret")})
            if request != message(method.input_type.name):
                with pytest.raises(Forbidden, match="secret"):
                    call(grpc_metadata(ALICE))
        request = message(method.input_type.name, Resource(), Resource())
        if method.name != "Heartbeat":
            with pytest.raises(Forbidden):
                call(grpc_metadata(ALICE))


def test_settings_need_a_permission_for_each_topic_and_the_group(tmp_path: Path) -> None:
    made = guard(authority(tmp_path))
    alice = sender(made, grpc_metadata(ALICE))

    def allowed(settings: Settings) -> bool:
        try:
            made.require(alice, settings_permissions(settings), peer(), "Telemetry")
        except Forbidden:
            return False
        return True

    entry, other = SubscriptionEntry(topic=TOPIC), SubscriptionEntry(topic=Resource(name="secret"))
    assert allowed(Settings(publishing=Publishing(topics=[TOPIC])))
    assert not allowed(Settings(publishing=Publishing(topics=[TOPIC, Resource(name="secret")])))
    assert allowed(Settings(subscription=Subscription(group=GROUP, subscriptions=[entry])))
    assert not allowed(Settings(subscription=Subscription(group=GROUP, subscriptions=[entry, other])))
    assert not allowed(Settings(subscription=Subscription(group=Resource(name="other"), subscriptions=[entry])))
    assert not allowed(Settings(subscription=Subscription()))


# The headers of the official clients: Java, Node, Rust, C#, Python; Go; C++.
@pytest.mark.parametrize("scope", ["", "//Rocketmq", "/cn-hangzhou/RocketMQ"])
@pytest.mark.parametrize("change", [str, str.lower], ids=["upper", "lower"])
def test_headers_of_all_clients(tmp_path: Path, scope: str, change: Callable[[str], str]) -> None:
    metadata = grpc_metadata(ALICE, scope=scope)
    head, _, digest = metadata["authorization"].rpartition("=")
    metadata["authorization"] = f"{head}={change(digest)}"
    assert sender(guard(authority(tmp_path)), metadata).user == "alice-1"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "MQv2-HMAC-SHA1",
        "MQv2-HMAC-SHA1 Credential=alice-1",
        "MQv2-HMAC-SHA1 Credential=alice-1, Signature=xyz",
        "MQv2-HMAC-SHA256 Credential=alice-1, SignedHeaders=x-mq-date-time, Signature=" + 40 * "0",
        "MQv2-HMAC-SHA1 Credential=alice-1, SignedHeaders=host, Signature=" + 40 * "0",
        "MQv2-HMAC-SHA1 Credential=alice-1, Credential=root-01, Signature=" + 40 * "0",
        "Basic YWxpY2U6c2VjcmV0",
    ],
)
def test_malformed_headers_are_not_read(tmp_path: Path, header: str) -> None:
    assert parse(header) is None
    with pytest.raises(Unauthorized):
        sender(guard(authority(tmp_path)), {"authorization": header, "x-mq-date-time": date_text()})


def test_an_empty_credential_is_none(tmp_path: Path) -> None:
    text = '[[users.anonymous.policies]]\nresources = "*"\nactions = "Pub"\n'
    made = guard(authority(tmp_path, text, anonymous=True))
    metadata = grpc_metadata(Credentials("", "x"))
    assert sender(made, metadata).method is Method.ANONYMOUS


@pytest.mark.parametrize(
    ("zones", "offset", "valid"),
    [
        (None, 0.0, True),
        (None, 299.0, True),
        (None, 301.0, False),
        (None, 8 * HOUR, True),
        (None, 5.75 * HOUR, True),
        (None, -12 * HOUR, True),
        (None, 15 * HOUR, False),
        (None, -13 * HOUR, False),
        ((0,), 0.0, True),
        ((0,), 8 * HOUR, False),
        ((0, 28_800), 8 * HOUR, True),
        ((0, 28_800), 7 * HOUR, False),
    ],
)
def test_signed_times_are_accepted_in_the_configured_zones(
    tmp_path: Path, zones: tuple[int, ...] | None, offset: float, valid: bool
) -> None:
    more = {} if zones is None else {"zones": zones}
    made = guard(authority(tmp_path), clock=lambda: 1_800_000_000.0, **more)
    metadata = grpc_metadata(ALICE, 1_800_000_000 + offset)
    if valid:
        assert sender(made, metadata).user == "alice-1"
    else:
        with pytest.raises(Unauthorized):
            sender(made, metadata)


def test_a_header_expires_although_it_was_verified(tmp_path: Path) -> None:
    now = 1_800_000_000.0
    made = guard(authority(tmp_path), zones=(0,), clock=lambda: now)
    metadata = grpc_metadata(ALICE, now)
    assert sender(made, metadata) is sender(made, metadata)
    now += 301
    with pytest.raises(Unauthorized):
        sender(made, metadata)


def test_times_of_the_rust_client_have_an_offset() -> None:
    assert list(signed_times("2026-11-22T22:00:00.5+08:00", (0,))) == [1795356000.5]
    assert list(signed_times("2026-11-22T22:00:00", (0,))) == []
    assert list(signed_times("yesterday", (0,))) == []


async def test_changes_of_users_apply_to_verified_headers(tmp_path: Path) -> None:
    users = authority(tmp_path)
    made, metadata = guard(users), grpc_metadata(ALICE)
    sender(made, metadata)
    (tmp_path / "users.toml").write_text("")
    await users.refresh()
    with pytest.raises(Unauthorized):
        sender(made, metadata)


def test_bearer_tokens_name_users_and_groups(tmp_path: Path) -> None:
    text = '[[groups.readers.policies]]\nresources = "Topic:orders"\nactions = "Sub"\n'
    made = guard(authority(tmp_path, text), tokens=FakeTokens())
    carol = sender(made, {"authorization": "Bearer valid"})
    assert (carol.user, carol.method) == ("carol", Method.TOKEN)
    made.require(carol, RPC_PERMISSIONS["QueryRoute"](message("QueryRouteRequest")), peer(), "QueryRoute")
    with pytest.raises(Forbidden):
        made.require(carol, RPC_PERMISSIONS["SendMessage"](message("SendMessageRequest")), peer(), "SendMessage")
    with pytest.raises(Unauthorized):
        sender(made, {"authorization": "Bearer other"})
    with pytest.raises(Unauthorized):
        sender(guard(authority(tmp_path, text)), {"authorization": "Bearer valid"})
