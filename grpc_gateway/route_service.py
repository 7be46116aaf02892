"""QueryRoute and QueryAssignment: queues of a topic, with the proxy's own address for every broker."""

from grpc_gateway import validation
from grpc_gateway.clients.rpc import Rpc
from grpc_gateway.core import Core
from grpc_gateway.endpoints import address_scheme, endpoints_of
from grpc_gateway.response_status import OK, Refused
from protos.apache.rocketmq.v2.definition_pb2 import (
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

# Bytes of an access point, and of a topic with its namespace: a response repeats both for each queue.
_MAX_REPEATED_BYTES = 4 * 2**10
# Queue id of an assignment of all queues of a broker.
_ALL_QUEUES = -1
# Message types of a topic that accepts any. Newer types are left out, because old clients fail on them.
_ANY_TYPE = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)
_ACCEPTED_TYPES = {
    properties.MessageType.UNSPECIFIED: _ANY_TYPE,
    properties.MessageType.MIXED: _ANY_TYPE,
    properties.MessageType.NORMAL: (MessageType.NORMAL,),
    properties.MessageType.FIFO: (MessageType.FIFO,),
    properties.MessageType.DELAY: (MessageType.DELAY,),
    properties.MessageType.TRANSACTION: (MessageType.TRANSACTION,),
    properties.MessageType.PRIORITY: (MessageType.PRIORITY,),
    properties.MessageType.LITE: (MessageType.LITE,),
}


class RouteService:
    """Serves QueryRoute and QueryAssignment."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def query_route(self, rpc: Rpc, request: QueryRouteRequest) -> QueryRouteResponse:
        """Return every queue of the topic, by broker name and the broker's queue id.

        A broker is listed once, without its replicas: the proxy chooses the replica that serves a request.
        """
        topic = _topic(request.topic)
        endpoints = self._endpoints(rpc, request.endpoints)
        route = await self._core.route(topic)
        accepted = _ACCEPTED_TYPES[(await self._core.topic(topic)).message_type]
        queues = [
            MessageQueue(
                topic=request.topic,
                id=queue_id,
                permission=permission,
                broker=_broker(broker_queues, endpoints),
                accept_message_types=accepted,
            )
            for broker_queues in route.queues
            for queue_id, permission in enumerate(_permissions(broker_queues))
        ]
        if not queues:
            raise Refused(Code.TOPIC_NOT_FOUND, f"topic {topic} has no queue on a live broker")
        return QueryRouteResponse(status=OK, message_queues=queues)

    async def query_assignment(self, rpc: Rpc, request: QueryAssignmentRequest) -> QueryAssignmentResponse:
        """Assign every broker with readable queues to every member; in an orderly group, each of its queues.

        Members of a lite group receive lite topics in order by broker (RouteActivity.queryAssignment).
        """
        topic, group = _topic(request.topic), validation.group(request.group)
        endpoints = self._endpoints(rpc, request.endpoints)
        route = await self._core.route(topic)
        config = await self._core.group(group)
        by_queue = config.orderly and not config.lite_bind_topic
        assignments = [
            _assignment(request.topic, queue_id, _broker(broker_queues, endpoints))
            for broker_queues in route.queues
            if broker_queues.readable
            for queue_id in (range(broker_queues.readable) if by_queue else (_ALL_QUEUES,))
        ]
        if not assignments:
            raise Refused(Code.FORBIDDEN, "no readable queue")
        return QueryAssignmentResponse(status=OK, assignments=assignments)

    def _endpoints(self, rpc: Rpc, requested: Endpoints) -> Endpoints:
        """Return the advertised address, or else the address that the client connected to. Raises Refused."""
        advertised = self._core.address(rpc.peer)
        if advertised is not None:
            return endpoints_of(advertised)
        if not requested.addresses or not all(address.host for address in requested.addresses):
            raise Refused(Code.ILLEGAL_ACCESS_POINT, "endpoints must contain the address that the client connected to")
        if (size := requested.ByteSize()) > _MAX_REPEATED_BYTES:
            raise Refused(
                Code.ILLEGAL_ACCESS_POINT, f"endpoints has {size} bytes; the maximum is {_MAX_REPEATED_BYTES}"
            )
        if requested.scheme == AddressScheme.ADDRESS_SCHEME_UNSPECIFIED:
            return Endpoints(scheme=address_scheme(requested.addresses[0].host), addresses=requested.addresses)
        return requested


def _topic(resource: Resource) -> str:
    """Return the name of a topic that the response repeats with its namespace. Raises Refused."""
    if (size := resource.ByteSize()) > _MAX_REPEATED_BYTES:
        raise Refused(
            Code.ILLEGAL_TOPIC, f"the topic with its namespace has {size} bytes; the maximum is {_MAX_REPEATED_BYTES}"
        )
    return validation.topic(resource)


def _broker(broker_queues: BrokerQueues, endpoints: Endpoints) -> Broker:
    return Broker(name=broker_queues.broker, id=MASTER_ID, endpoints=endpoints)


def _permissions(broker_queues: BrokerQueues) -> list[Permission]:
    """Return the permission of each queue, by queue id."""
    return [
        _PERMISSIONS[queue_id < broker_queues.readable, queue_id < broker_queues.writable]
        for queue_id in range(broker_queues.count)
    ]


# By readable and writable.
_PERMISSIONS = {
    (True, True): Permission.READ_WRITE,
    (True, False): Permission.READ,
    (False, True): Permission.WRITE,
    (False, False): Permission.NONE,
}


def _assignment(topic: Resource, queue_id: int, broker: Broker) -> Assignment:
    queue = MessageQueue(topic=topic, id=queue_id, permission=Permission.READ, broker=broker)
    return Assignment(message_queue=queue)
