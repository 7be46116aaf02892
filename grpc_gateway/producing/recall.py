"""RecallMessage: a delayed message is taken back before it is due."""

from grpc_gateway import validation
from grpc_gateway.call import Call
from grpc_gateway.core import Core
from grpc_gateway.options import Options
from grpc_gateway.status import OK, Refused, of_response
from protos.apache.rocketmq.v2.definition_pb2 import Code
from protos.apache.rocketmq.v2.service_pb2 import RecallMessageRequest, RecallMessageResponse
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import BodyError
from remoting.ids import RecallHandle
from remoting.properties import MessageType

_RECALLABLE = (MessageType.DELAY, MessageType.MIXED, MessageType.UNSPECIFIED)


class Recall:
    """Recalls."""

    def __init__(self, core: Core, options: Options) -> None:
        self._core = core
        self._options = options

    async def recall(self, call: Call, request: RecallMessageRequest) -> RecallMessageResponse:
        """Have the broker that the handle names take the message back."""
        topic = validation.topic(request.topic)
        if self._options.validate_message_type:
            kind = (await self._core.topic(topic)).message_type
            if kind not in _RECALLABLE:
                raise Refused(
                    Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, f"{topic} takes {kind}, of which nothing can be recalled"
                )
        try:
            handle = RecallHandle.parse(request.recall_handle)
        except BodyError as error:
            raise Refused(Code.BAD_REQUEST, str(error)) from None
        command = commands.request(
            RequestCode.RECALL_MESSAGE,
            # The group names nobody; brokers note it in the message that recalls.
            {
                "topic": topic,
                "producerGroup": topic,
                "recallHandle": request.recall_handle,
                "bname": handle.broker_name,
            },
        )
        answer = await call.ask(self._core, command, handle.broker_name)
        if answer.code != ResponseCode.SUCCESS:
            return RecallMessageResponse(status=of_response(answer))
        return RecallMessageResponse(status=OK, message_id=answer.fields.get("msgId") or handle.message_id)
