"""The reply of a receive that found no message, as clients accept it without an error."""

from collections.abc import Mapping

from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.request_kinds import RequestKind
from remoting.requests import RequestSpec

UNREAD = "the client has not read its responses"


def empty_poll(spec: RequestSpec, fields: Mapping[str, str], remark: str) -> RemotingCommand:
    """Return the reply "no message found" to a request with these fields, which repeats a pull's offset."""
    if spec.kind is RequestKind.PULL:
        offset = fields.get("queueOffset", "0")
        found = {"nextBeginOffset": offset, "minOffset": "0", "maxOffset": offset, "suggestWhichBrokerId": "0"}
        return commands.response(ResponseCode.PULL_NOT_FOUND, found, remark=remark)
    if spec.code == RequestCode.NOTIFICATION:
        return commands.success({"hasMsg": "false", "pollingFull": "false"})
    found = dict.fromkeys(("popTime", "invisibleTime", "reviveQid", "restNum"), "0")
    # A peek has no poll time.
    code = ResponseCode.POLLING_TIMEOUT if spec.poll is not None else ResponseCode.PULL_NOT_FOUND
    return commands.response(code, found, remark=remark)


def unread_poll(spec: RequestSpec, fields: Mapping[str, str]) -> RemotingCommand:
    """Return the reply to a client that has not read its responses: it repeats a pull, or receives again."""
    reply = empty_poll(spec, fields, UNREAD)
    if spec.kind is RequestKind.PULL:
        reply.code = reply.header["code"] = int(ResponseCode.PULL_RETRY_IMMEDIATELY)
    return reply
