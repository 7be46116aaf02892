"""AdminSendMessage."""

import socket
import uuid

from grpc_gateway.clients.rpc import Rpc
from grpc_gateway.producing.half_messages import HalfMessages
from grpc_gateway.producing.send_service import SendService
from grpc_gateway.response_status import Refused
from grpc_gateway.unary import parsed
from protocol_negotiation.peer import HostPort, Peer
from protos.apache.rocketmq.v2 import admin_pb2 as pb
from protos.apache.rocketmq.v2.definition_pb2 import Code, Message, MessageType, Resource
from protos.apache.rocketmq.v2.service_pb2 import SendMessageRequest, SendMessageResponse
from proxy.core.grpc_channel import GrpcChannel
from proxy.operations.services import AdminServices

_NAME = "gantry-admin"
_NOWHERE = HostPort("127.0.0.1", 0)


class Sender:
    """A producer without a group; its messages go to a topic's queues in turn."""

    def __init__(self, services: AdminServices) -> None:
        gateway = services.replica.grpc.gateway
        options = services.replica.settings.grpc.options(services.replica.settings.client_expiry)
        self._sending = SendService(gateway, options, HalfMessages(gateway))
        self._peer = Peer(_NOWHERE, _NOWHERE)

    async def send(self, _: AdminServices, request: pb.AdminSendMessageRequest) -> pb.AdminSendMessageResponse:
        """Store one message as a gRPC producer's, with its checks and the traffic rules.

        Consumers of both protocols receive it, so ext_info, which may name one, has no effect. Raises Refused,
        RemotingError.
        """
        call = Rpc(GrpcChannel(_NAME, self._peer), None, self._peer)
        sent = await self._sending.send(call, SendMessageRequest(messages=[_message(request)]))
        response: SendMessageResponse = parsed(SendMessageResponse, sent)
        return pb.AdminSendMessageResponse(status=response.status, message_id=response.entries[0].message_id)


def _message(request: pb.AdminSendMessageRequest) -> Message:
    message = Message(topic=Resource(name=request.topic.name), body=request.body)
    system = message.system_properties
    system.CopyFrom(request.system_properties)
    if system.message_type == MessageType.TRANSACTION:
        raise Refused(Code.BAD_REQUEST, "nobody would end the transaction: a transactional message needs its producer")
    for key, value in request.user_properties.items():
        message.user_properties[key] = value
    if request.tag:
        system.tag = request.tag
    if request.key and request.key not in system.keys:
        system.keys.append(request.key)
    # In the form of clients' ids: a version, and 16 bytes.
    system.message_id = system.message_id or f"01{uuid.uuid4().hex.upper()}"
    system.born_host = system.born_host or socket.gethostname()
    return message
