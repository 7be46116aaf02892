"""RecallMessage: recalls a delayed message before it is due."""

from grpc_gateway import validation
from grpc_gateway.clients.rpc import Rpc
from grpc_gateway.core import Core
from grpc_gateway.gateway_options import GatewayOptions
from grpc_gateway.response_status import OK, Refused, status_from_reply
from protos.apache.rocketmq.v2.definition_pb2 import Code
from protos.apache.rocketmq.v2.service_pb2 import RecallMessageRequest, RecallMessageResponse
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import BodyError
from remoting.ids import RecallHandle
from remoting.properties import MessageType

_RECALLABLE = (MessageType.DELAY, MessageType.MIXED, MessageType.UNSPECIFIED)


class RecallService:
    """Serves recalls."""

    def __init__(self, core: Core, options: GatewayOptions) -> None:
        self._core = core
        self._options = options

    async def recall(self, rpc: Rpc, request: RecallMessageRequest) -> RecallMessageResponse:
        """Recall the message from the broker in its handle. Raises Refused, RemotingError."""
        topic = validation.topic(request.topic)
        if self._options.validate_message_type:
            kind = (await self._core.topic(topic)).message_type
            if kind not in _RECALLABLE:
                raise validation.wrong_message_type(kind, MessageType.DELAY)
        try:
            handle = RecallHandle.parse(request.recall_handle)
        except BodyError:
            raise Refused(Code.BAD_REQUEST, "recall handle is invalid") from None
        command = commands.request(
            RequestCode.RECALL_MESSAGE,
            # Brokers require a producer group, and only store it in the recalling message.
            {
                "topic": topic,
                "producerGroup": topic,
                "recallHandle": request.recall_handle,
                "bname": handle.broker_name,
            },
        )
        reply = await rpc.request(self._core, command, handle.broker_name)
        if reply.code != ResponseCode.SUCCESS:
            return RecallMessageResponse(status=status_from_reply(reply))
        return RecallMessageResponse(status=OK, message_id=reply.fields.get("msgId") or handle.message_id)
