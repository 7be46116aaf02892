import pytest

from grpc_gateway.endpoints import address_scheme
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
from tests.grpc_gateway.fakes import ENDPOINTS, FakeCore, make_rpc
from tests.grpc_gateway.messages import resource, route

pytestmark = pytest.mark.anyio


async def query_route(core: FakeCore, endpoints: Endpoints = ENDPOINTS) -> list[MessageQueue]:
    request = QueryRouteRequest(topic=resource(), endpoints=endpoints)
    response = await RouteService(core).query_route(make_rpc(), request)
    assert response.status.code == Code.OK
    return list(response.message_queues)


async def query_assignment(core: FakeCore) -> list[Assignment]:
    request = QueryAssignmentRequest(topic=resource(), group=resource("g"), endpoints=ENDPOINTS)
    response = await RouteService(core).query_assignment(make_rpc(), request)
    assert response.status.code == Code.OK
    return list(response.assignments)


async def test_every_queue_has_the_address_that_the_client_connected_to() -> None:
    queues = await query_route(FakeCore(routes={"orders": route("orders", "broker-b", "broker-a")}))
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
async def test_queue_permissions_follow_the_route(read: int, write: int, perm: int, expected: list[Permission]) -> None:
    queues = await query_route(FakeCore(routes={"orders": route(read=read, write=write, perm=perm)}))
    assert [(queue.id, queue.permission) for queue in queues] == list(enumerate(expected))


async def test_broker_without_a_master_is_readable_only() -> None:
    topic_route = route()
    topic_route.data["brokerDatas"][0]["brokerAddrs"] = {1: "slave:10911"}
    assert {queue.permission for queue in await query_route(FakeCore(routes={"orders": topic_route}))} == {
        Permission.READ
    }


async def test_broker_without_addresses_is_left_out() -> None:
    topic_route = route("orders", "broker-a", "broker-b")
    del topic_route.data["brokerDatas"][0]
    assert {queue.broker.name for queue in await query_route(FakeCore(routes={"orders": topic_route}))} == {"broker-b"}


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
async def test_accepted_message_types_follow_the_topic(kind: TopicType, expected: list[int]) -> None:
    core = FakeCore(routes={"orders": route()}, topics={"orders": TopicConfig("orders", kind)})
    assert {tuple(queue.accept_message_types) for queue in await query_route(core)} == {tuple(expected)}


@pytest.mark.parametrize(
    ("advertised", "expected"),
    [
        (HostPort("203.0.113.5", 80), AddressScheme.IPv4),
        (HostPort("2001:db8::1", 80), AddressScheme.IPv6),
        (HostPort("gantry.example", 80), AddressScheme.DOMAIN_NAME),
    ],
)
async def test_advertised_address_is_preferred(advertised: HostPort, expected: AddressScheme) -> None:
    core = FakeCore(routes={"orders": route()}, advertised=advertised)
    endpoints = (await query_route(core, Endpoints()))[0].broker.endpoints
    assert endpoints == Endpoints(scheme=expected, addresses=[Address(host=advertised.host, port=80)])
    assert address_scheme(advertised.host) == expected


async def test_missing_address_scheme_is_added() -> None:
    requested = Endpoints(addresses=[Address(host="gantry.example", port=8080)])
    endpoints = (await query_route(FakeCore(routes={"orders": route()}), requested))[0].broker.endpoints
    assert endpoints.scheme == AddressScheme.DOMAIN_NAME


@pytest.mark.parametrize("endpoints", [Endpoints(), Endpoints(addresses=[Address(port=1)])])
async def test_request_without_an_address_is_rejected(endpoints: Endpoints) -> None:
    with pytest.raises(Refused) as refused:
        await query_route(FakeCore(routes={"orders": route()}), endpoints)
    assert refused.value.code == Code.ILLEGAL_ACCESS_POINT


async def test_unknown_topic_raises() -> None:
    with pytest.raises(TopicNotExist):
        await query_route(FakeCore())


async def test_assignments_are_brokers_with_all_queues() -> None:
    assignments = await query_assignment(FakeCore(routes={"orders": route("orders", "broker-a", "broker-b")}))
    assert [(assignment.message_queue.broker.name, assignment.message_queue.id) for assignment in assignments] == [
        ("broker-a", -1),
        ("broker-b", -1),
    ]
    assert {assignment.message_queue.permission for assignment in assignments} == {Permission.READ}


async def test_assignments_of_an_orderly_group_are_single_queues() -> None:
    core = FakeCore(routes={"orders": route(read=2)}, groups={"g": GroupConfig("g", orderly=True)})
    assert [assignment.message_queue.id for assignment in await query_assignment(core)] == [0, 1]


async def test_assignments_of_an_orderly_lite_group_are_brokers() -> None:
    group = GroupConfig("g", orderly=True, lite_bind_topic="orders")
    core = FakeCore(routes={"orders": route("orders", "broker-a", "broker-b", read=2)}, groups={"g": group})
    assert [assignment.message_queue.id for assignment in await query_assignment(core)] == [-1, -1]


async def test_assignment_of_a_topic_without_readable_queues_is_forbidden() -> None:
    with pytest.raises(Refused) as refused:
        await query_assignment(FakeCore(routes={"orders": route(perm=2)}))
    assert refused.value.code == Code.FORBIDDEN


async def test_size_of_repeated_fields_is_limited() -> None:
    core = FakeCore(routes={"orders": route()})
    addresses = [Address(host="192.0.2.1", port=number) for number in range(1_000)]
    with pytest.raises(Refused) as refused:
        await query_route(core, Endpoints(scheme=AddressScheme.IPv4, addresses=addresses))
    assert refused.value.code == Code.ILLEGAL_ACCESS_POINT
    topic, routes = resource(), RouteService(core)
    topic.resource_namespace = "x" * 5_000
    for rpc in (
        routes.query_route(make_rpc(), QueryRouteRequest(topic=topic, endpoints=ENDPOINTS)),
        routes.query_assignment(
            make_rpc(), QueryAssignmentRequest(topic=topic, group=resource("g"), endpoints=ENDPOINTS)
        ),
    ):
        with pytest.raises(Refused) as refused:
            await rpc
        assert refused.value.code == Code.ILLEGAL_TOPIC
