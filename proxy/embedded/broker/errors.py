"""Refusals of requests, and the fields of their responses."""

from collections.abc import Mapping
from enum import IntEnum

from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.requests import PULLS

# Java brokers write the header of every response: fields that were not set are zero or false.
_HANDLE = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0"}
_HEADERS: Mapping[int, Mapping[str, str]] = {
    RequestCode.POP_MESSAGE: {**_HANDLE, "restNum": "0"},
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _HANDLE,
    RequestCode.PEEK_MESSAGE: {**_HANDLE, "restNum": "0"},
    RequestCode.NOTIFICATION: {"hasMsg": "false", "pollingFull": "false"},
    RequestCode.POLLING_INFO: {"pollingNum": "0"},
}


class Refused(RemotingError):
    """A refusal with its own code, which need not be a member of ResponseCode."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.number = int(code)


class ForbiddenType(IntEnum):
    """The reason for which reading is not permitted (RocketMQ's ForbiddenType)."""

    GROUP = 2
    TOPIC = 3
    BROADCASTING = 4


class Forbidden(Refused):
    """Reading is not permitted."""

    def __init__(self, kind: ForbiddenType, message: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, message)
        self.kind = kind


def fields_of(request_code: int, error: RemotingError) -> dict[str, str]:
    """Return the fields of a response to this request code with this error."""
    if isinstance(error, Forbidden) and request_code in PULLS:
        return {"forbiddenType": str(int(error.kind))}
    return dict(_HEADERS.get(request_code, {}))


def code_of(error: RemotingError) -> int:
    """Return the response code of an error."""
    return error.number if isinstance(error, Refused) else int(error.code)


def refusal(code: int, remark: str, fields: dict[str, str] | None = None) -> RemotingCommand:
    """Return a response that is not SUCCESS."""
    return commands.response(code, fields, remark=remark)
