"""What can go wrong on the remoting side; every class knows the response code that tells a client so."""

from typing import TYPE_CHECKING, ClassVar

from remoting.codes import ResponseCode

if TYPE_CHECKING:
    from remoting.frame import Frame


class RemotingError(Exception):
    """Base of all; `str(error)` becomes the remark, `code` the response code of the answer."""

    code: ClassVar[ResponseCode] = ResponseCode.SYSTEM_ERROR


class FrameError(RemotingError):
    """The byte stream can no longer be trusted; the connection has to be closed.

    `frames` are those that came whole before the trouble.
    """

    def __init__(self, message: str, frames: "list[Frame] | None" = None) -> None:
        super().__init__(message)
        self.frames = frames or []


class HeaderError(RemotingError):
    """A frame arrived whole, but its header has a field that cannot be.

    `opaque` is the request to answer, or None where that cannot be told: then the peer cannot be
    answered and the connection has to be closed. A `oneway` request is not to be answered.
    """

    def __init__(self, message: str, opaque: int | None = None, oneway: bool = False) -> None:
        super().__init__(message)
        self.opaque = opaque
        self.oneway = oneway


class BodyError(RemotingError):
    """A request's body is not what its code calls for."""

    code = ResponseCode.INVALID_PARAMETER


class InvalidRequest(RemotingError):
    """A request lacks a field, or a field has a value that cannot be."""

    code = ResponseCode.INVALID_PARAMETER


class UnsupportedRequest(RemotingError):
    """Nobody here knows what to do with this request code."""

    code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED


class NotPermitted(RemotingError):
    """The request is one that this server was told not to serve."""

    code = ResponseCode.NO_PERMISSION


class ServiceUnavailable(RemotingError):
    """The broker that has to serve this request cannot be reached now; another try may succeed."""

    code = ResponseCode.SERVICE_NOT_AVAILABLE


class ConnectionLost(ServiceUnavailable):
    """The connection went away while the request was under way; whether it was served is unknown."""


class RequestTimeout(RemotingError):
    """The peer did not answer in time; whether the request was served is unknown."""

    code = ResponseCode.SYSTEM_BUSY


class Overloaded(RemotingError):
    """A bound on what may be under way has been reached; try again later."""

    code = ResponseCode.SYSTEM_BUSY


class TopicNotExist(RemotingError):
    """No name server knows a route of this topic."""

    code = ResponseCode.TOPIC_NOT_EXIST


class BrokerNotNamed(RemotingError):
    """The request does not say which broker it is for, and that cannot be concluded."""

    code = ResponseCode.VERSION_NOT_SUPPORTED


class ConsumerNotOnline(RemotingError):
    """The client or group that the request is about is not connected."""

    code = ResponseCode.CONSUMER_NOT_ONLINE


class GoAway(RemotingError):
    """This endpoint is about to close; connect again and repeat the request."""

    code = ResponseCode.GO_AWAY
