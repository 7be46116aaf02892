import pytest

from grpc_gateway.endpoints import address_scheme
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.response_status import Refused
from grpc_gateway.route_service import RouteService
from protocol_negotiation.peer import HostPort
from protos.apache.rocketmq.v2.definition_pb2 import (
    Address,
    AddressScheme,
    Assignment,
    Code,
    Endpoints,
    MessageQueue,
    MessageType,
    Permission,
)
from protos.apache.rocketmq.v2.service_pb2 import QueryAssignmentRequest, QueryRouteRequest
from remoting.errors import TopicNotExist
from remoting.properties import MessageType as TopicType
from remoting.topic_group_config import GroupConfig, TopicConfig
from tests.grpc_gateway.kit import ENDPOINTS, FakeCore, call, resource, route

pytestmark = pytest.mark.anyio


async def query(core: FakeCore, endpoints: Endpoints = ENDPOINTS) -> list[MessageQueue]:
    request = QueryRouteRequest(topic=resource(), endpoints=endpoints)
    response = await RouteService(core, GatewayOptions()).query_route(call(), request)
    assert response.status.code == Code.OK
    return list(response.message_queues)


async def assigned(core: FakeCore) -> list[Assignment]:
    request = QueryAssignmentRequest(topic=resource(), group=resource("g"), endpoints=ENDPOINTS)
    response = await RouteService(core, GatewayOptions()).query_assignment(call(), request)
    assert response.status.code == Code.OK
    return list(response.assignments)


async def test_every_queue_is_shown_where_the_client_reached_us() -> None:
    queues = await query(FakeCore(routes={"orders": route("orders", "broker-b", "broker-a")}))
    assert [(queue.broker.name, queue.id) for queue in queues] == [
        (broker, number) for broker in ("broker-a", "broker-b") for number in range(4)
    ]
    assert {queue.permission for queue in queues} == {Permission.READ_WRITE}
    assert {queue.broker.id for queue in queues} == {0}
    assert all(queue.broker.endpoints == ENDPOINTS and queue.topic == resource() for queue in queues)


@pytest.mark.parametrize(
    ("read", "write", "perm", "expected"),
    [
        (2, 3, 6, [Permission.READ_WRITE, Permission.READ_WRITE, Permission.WRITE]),
        (3, 1, 6, [Permission.READ_WRITE, Permission.READ, Permission.READ]),
        (2, 2, 4, [Permission.READ, Permission.READ]),
        (2, 2, 2, [Permission.WRITE, Permission.WRITE]),
        (1, 2, 0, [Permission.NONE, Permission.NONE]),
    ],
)
async def test_permissions_are_the_queues_own(read: int, write: int, perm: int, expected: list[Permission]) -> None:
    queues = await query(FakeCore(routes={"orders": route(read=read, write=write, perm=perm)}))
    assert [(queue.id, queue.permission) for queue in queues] == list(enumerate(expected))


async def test_a_broker_without_master_is_for_reading() -> None:
    found = route()
    found.data["brokerDatas"][0]["brokerAddrs"] = {1: "slave:10911"}
    assert {queue.permission for queue in await query(FakeCore(routes={"orders": found}))} == {Permission.READ}


async def test_a_broker_without_replicas_is_not_shown() -> None:
    found = route("orders", "broker-a", "broker-b")
    del found.data["brokerDatas"][0]
    assert {queue.broker.name for queue in await query(FakeCore(routes={"orders": found}))} == {"broker-b"}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (TopicType.NORMAL, [MessageType.NORMAL]),
        (TopicType.FIFO, [MessageType.FIFO]),
        (TopicType.DELAY, [MessageType.DELAY]),
        (TopicType.TRANSACTION, [MessageType.TRANSACTION]),
        (TopicType.PRIORITY, [MessageType.PRIORITY]),
        (TopicType.LITE, [MessageType.LITE]),
        (TopicType.MIXED, [1, 2, 3, 4]),
        (TopicType.UNSPECIFIED, [1, 2, 3, 4]),
    ],
)
async def test_types_are_told(kind: TopicType, expected: list[int]) -> None:
    core = FakeCore(routes={"orders": route()}, topics={"orders": TopicConfig("orders", kind)})
    assert {tuple(queue.accept_message_types) for queue in await query(core)} == {tuple(expected)}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (HostPort("203.0.113.5", 80), AddressScheme.IPv4),
        (HostPort("2001:db8::1", 80), AddressScheme.IPv6),
        (HostPort("gantry.example", 80), AddressScheme.DOMAIN_NAME),
    ],
)
async def test_an_advertised_address_is_told_instead(told: HostPort, expected: AddressScheme) -> None:
    core = FakeCore(routes={"orders": route()}, told=told)
    endpoints = (await query(core, Endpoints()))[0].broker.endpoints
    assert endpoints == Endpoints(scheme=expected, addresses=[Address(host=told.host, port=80)])
    assert address_scheme(told.host) == expected


async def test_a_missing_scheme_is_found() -> None:
    asked = Endpoints(addresses=[Address(host="gantry.example", port=8080)])
    found = (await query(FakeCore(routes={"orders": route()}), asked))[0].broker.endpoints
    assert found.scheme == AddressScheme.DOMAIN_NAME


@pytest.mark.parametrize("endpoints", [Endpoints(), Endpoints(addresses=[Address(port=1)])])
async def test_an_address_is_needed(endpoints: Endpoints) -> None:
    with pytest.raises(Refused) as refused:
        await query(FakeCore(routes={"orders": route()}), endpoints)
    assert refused.value.code == Code.ILLEGAL_ACCESS_POINT


async def test_unknown_topics() -> None:
    with pytest.raises(TopicNotExist):
        await query(FakeCore())


async def test_assignments_are_brokers() -> None:
    found = await assigned(FakeCore(routes={"orders": route("orders", "broker-a", "broker-b")}))
    assert [(one.message_queue.broker.name, one.message_queue.id) for one in found] == [
        ("broker-a", -1),
        ("broker-b", -1),
    ]
    assert {one.message_queue.permission for one in found} == {Permission.READ}


async def test_assignments_of_an_orderly_group_are_queues() -> None:
    core = FakeCore(routes={"orders": route(read=2)}, groups={"g": GroupConfig("g", orderly=True)})
    assert [one.message_queue.id for one in await assigned(core)] == [0, 1]


async def test_nothing_to_read() -> None:
    with pytest.raises(Refused) as refused:
        await assigned(FakeCore(routes={"orders": route(perm=2)}))
    assert refused.value.code == Code.FORBIDDEN


async def test_what_is_told_back_for_each_queue_is_bounded() -> None:
    core = FakeCore(routes={"orders": route()})
    addresses = [Address(host="192.0.2.1", port=number) for number in range(1_000)]
    with pytest.raises(Refused) as refused:
        await query(core, Endpoints(scheme=AddressScheme.IPv4, addresses=addresses))
    assert refused.value.code == Code.ILLEGAL_ACCESS_POINT
    topic, routes = resource(), RouteService(core, GatewayOptions())
    topic.resource_namespace = "x" * 5_000
    for asked in (
        routes.query_route(call(), QueryRouteRequest(topic=topic, endpoints=ENDPOINTS)),
        routes.query_assignment(call(), QueryAssignmentRequest(topic=topic, group=resource("g"), endpoints=ENDPOINTS)),
    ):
        with pytest.raises(Refused) as refused:
            await asked
        assert refused.value.code == Code.ILLEGAL_TOPIC
