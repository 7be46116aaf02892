"""QueryRoute and QueryAssignment: a topic's queues, all of them to be reached where the client reached us."""

from ipaddress import IPv6Address, ip_address

from grpc_gateway import validation
from grpc_gateway.call import Call
from grpc_gateway.core import Core
from grpc_gateway.options import Options
from grpc_gateway.status import OK, Refused
from protos.apache.rocketmq.v2.definition_pb2 import (
    Address,
    AddressScheme,
    Assignment,
    Broker,
    Code,
    Endpoints,
    MessageQueue,
    MessageType,
    Permission,
    Resource,
)
from protos.apache.rocketmq.v2.service_pb2 import (
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    QueryRouteRequest,
    QueryRouteResponse,
)
from remoting import properties
from remoting.routes import MASTER_ID, BrokerQueues

# Bytes of an access point, and of a topic with its namespace: both are told back once for each queue.
_LARGEST = 4 * 2**10
# Stands for all queues of a broker: it may hand out messages of any.
_ANY_QUEUE = -1
# What clients may send where nothing restricts them. Newer types are left out: old clients fail on them.
_ANY_TYPE = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)
_ACCEPTED = {
    properties.MessageType.UNSPECIFIED: _ANY_TYPE,
    properties.MessageType.MIXED: _ANY_TYPE,
    properties.MessageType.NORMAL: (MessageType.NORMAL,),
    properties.MessageType.FIFO: (MessageType.FIFO,),
    properties.MessageType.DELAY: (MessageType.DELAY,),
    properties.MessageType.TRANSACTION: (MessageType.TRANSACTION,),
    properties.MessageType.PRIORITY: (MessageType.PRIORITY,),
    properties.MessageType.LITE: (MessageType.LITE,),
}


class Routes:
    """Routes and assignments."""

    def __init__(self, core: Core, options: Options) -> None:
        self._core = core
        self._options = options

    async def query_route(self, call: Call, request: QueryRouteRequest) -> QueryRouteResponse:
        """Every queue of the topic, by broker name and queue id; the ids are the brokers' own.

        A broker is shown once, whatever replicas it has: which of them serves is for us to find.
        """
        topic = _topic(request.topic)
        endpoints = self._endpoints(call, request.endpoints)
        route = await self._core.route(topic)
        accepted = _ACCEPTED[(await self._core.topic(topic)).message_type]
        queues = [
            MessageQueue(
                topic=request.topic,
                id=number,
                permission=permission,
                broker=_broker(found, endpoints),
                accept_message_types=accepted,
            )
            for found in route.queues
            for number, permission in enumerate(_permissions(found))
        ]
        if not queues:
            raise Refused(Code.TOPIC_NOT_FOUND, f"topic {topic} has no queue on a live broker")
        return QueryRouteResponse(status=OK, message_queues=queues)

    async def query_assignment(self, call: Call, request: QueryAssignmentRequest) -> QueryAssignmentResponse:
        """Every member of a group may receive from every broker; from single queues where the group is orderly."""
        topic, group = _topic(request.topic), validation.group(request.group)
        endpoints = self._endpoints(call, request.endpoints)
        route = await self._core.route(topic)
        orderly = (await self._core.group(group)).orderly
        assignments = [
            _assignment(request.topic, number, _broker(found, endpoints))
            for found in route.queues
            if found.readable
            for number in (range(found.readable) if orderly else (_ANY_QUEUE,))
        ]
        if not assignments:
            raise Refused(Code.FORBIDDEN, f"no queue of topic {topic} can be read now")
        return QueryAssignmentResponse(status=OK, assignments=assignments)

    def _endpoints(self, call: Call, asked: Endpoints) -> Endpoints:
        """Where this client shall find us: as configured, else where it has found us. Raises Refused."""
        told = self._core.address(call.peer)
        if told is not None:
            return Endpoints(scheme=scheme(told.host), addresses=(Address(host=told.host, port=told.port),))
        if not asked.addresses or not all(address.host for address in asked.addresses):
            raise Refused(Code.ILLEGAL_ACCESS_POINT, "the request does not say at which address the client reached us")
        if asked.ByteSize() > _LARGEST:
            raise Refused(Code.ILLEGAL_ACCESS_POINT, f"an access point has at most {_LARGEST} bytes")
        if asked.scheme == AddressScheme.ADDRESS_SCHEME_UNSPECIFIED:
            return Endpoints(scheme=scheme(asked.addresses[0].host), addresses=asked.addresses)
        return asked


def _topic(resource: Resource) -> str:
    """The name of a topic that is told back with its namespace. Raises Refused."""
    if resource.ByteSize() > _LARGEST:
        raise Refused(Code.ILLEGAL_TOPIC, f"a topic with its namespace has at most {_LARGEST} bytes")
    return validation.topic(resource)


def scheme(host: str) -> AddressScheme:
    """What kind of address a host is."""
    try:
        address = ip_address(host)
    except ValueError:
        return AddressScheme.DOMAIN_NAME
    return AddressScheme.IPv6 if isinstance(address, IPv6Address) else AddressScheme.IPv4


def _broker(found: BrokerQueues, endpoints: Endpoints) -> Broker:
    return Broker(name=found.broker, id=MASTER_ID, endpoints=endpoints)


def _permissions(found: BrokerQueues) -> list[Permission]:
    """Each queue's permission, by its id."""
    return [_PERMISSIONS[number < found.readable, number < found.writable] for number in range(found.count)]


_PERMISSIONS = {
    (True, True): Permission.READ_WRITE,
    (True, False): Permission.READ,
    (False, True): Permission.WRITE,
    (False, False): Permission.NONE,
}


def _assignment(topic: Resource, number: int, broker: Broker) -> Assignment:
    queue = MessageQueue(topic=topic, id=number, permission=Permission.READ, broker=broker)
    return Assignment(message_queue=queue)
