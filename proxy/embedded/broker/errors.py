"""What a refusal says besides code and remark.

Java brokers write an answer's header whatever becomes of the request: what was never set is there as zero or false.
"""

from collections.abc import Mapping
from enum import IntEnum

from proxy.embedded.broker.request import Refused
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingError

_HANDLE = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0"}
_HEADERS: Mapping[int, Mapping[str, str]] = {
    RequestCode.POP_MESSAGE: {**_HANDLE, "restNum": "0"},
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _HANDLE,
    RequestCode.PEEK_MESSAGE: {**_HANDLE, "restNum": "0"},
    RequestCode.NOTIFICATION: {"hasMsg": "false", "pollingFull": "false"},
    RequestCode.POLLING_INFO: {"pollingNum": "0"},
}
_PULLS = frozenset((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE))


class ForbiddenType(IntEnum):
    """Who may not read (RocketMQ's ForbiddenType)."""

    GROUP = 2
    TOPIC = 3
    BROADCASTING = 4


class Forbidden(Refused):
    """Reading is not permitted."""

    def __init__(self, kind: ForbiddenType, message: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, message)
        self.kind = kind


def fields_of(request_code: int, error: RemotingError) -> dict[str, str]:
    """The fields of an answer to this request that has come to this."""
    if isinstance(error, Forbidden) and request_code in _PULLS:
        return {"forbiddenType": str(int(error.kind))}
    return dict(_HEADERS.get(request_code, {}))
