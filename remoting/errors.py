"""Errors of the remoting protocol, each with its response code."""

from typing import ClassVar

from remoting.codes import ResponseCode


class RemotingError(Exception):
    """Base class. In the response, `str(error)` is the remark and `code` the response code."""

    code: ClassVar[ResponseCode] = ResponseCode.SYSTEM_ERROR


class FrameError(RemotingError):
    """The byte stream is invalid, and the connection has to be closed.

    `frames` are the complete frames (`remoting.frame.Frame`) before the invalid bytes.
    """

    def __init__(self, message: str, frames: list[tuple[int, bytes, bytes]] | None = None) -> None:
        super().__init__(message)
        self.frames = frames or []


class HeaderError(RemotingError):
    """The header of a complete frame is invalid.

    `opaque` is that of the request, or None if it is unknown or the frame is a response; the connection then has to be
    closed. A `oneway` request gets no response.
    """

    def __init__(self, message: str, opaque: int | None = None, oneway: bool = False) -> None:
        super().__init__(message)
        self.opaque = opaque
        self.oneway = oneway


class BodyError(RemotingError):
    """A body is invalid for its request code."""

    code = ResponseCode.INVALID_PARAMETER


class InvalidRequest(RemotingError):
    """An ext field of a request is missing or invalid."""

    code = ResponseCode.INVALID_PARAMETER


class UnsupportedRequest(RemotingError):
    """The request code is not supported."""

    code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED


class NotPermitted(RemotingError):
    """The request is not permitted. delay: seconds until the response is sent."""

    delay = 0.0

    code = ResponseCode.NO_PERMISSION


class CredentialExpired(NotPermitted):
    """The sender's credential has expired while its request waited."""


class ServiceUnavailable(RemotingError):
    """The broker of the request cannot be reached now; a retry may succeed."""

    code = ResponseCode.SERVICE_NOT_AVAILABLE


class ConnectionLost(ServiceUnavailable):
    """The connection was lost before the response came; whether the request was served is unknown."""


class ClientGone(ConnectionLost):
    """The client disconnected before its request was sent to a server."""


class RequestTimeout(RemotingError):
    """The peer did not respond in time; whether the request was served is unknown."""

    code = ResponseCode.SYSTEM_BUSY


class Overloaded(RemotingError):
    """A limit of in-flight requests is reached; a later retry may succeed."""

    code = ResponseCode.SYSTEM_BUSY


class MessageNotFound(RemotingError):
    """A broker has no message at the place that a request names."""

    code = ResponseCode.SYSTEM_ERROR


class TopicNotExist(RemotingError):
    """No name server has a route of the topic. topic: its name, where the error was made from that alone."""

    code = ResponseCode.TOPIC_NOT_EXIST

    topic: str | None = None


class GroupNotExist(RemotingError):
    """The consumer group does not exist, and is not created."""

    code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


class BrokerNotNamed(RemotingError):
    """The request does not name its broker, and the broker cannot be inferred."""

    code = ResponseCode.VERSION_NOT_SUPPORTED


class ConsumerNotOnline(RemotingError):
    """The client or group that the request is about is not connected."""

    code = ResponseCode.CONSUMER_NOT_ONLINE


class GoAway(RemotingError):
    """This endpoint is about to close; the client should reconnect and retry."""

    code = ResponseCode.GO_AWAY


def no_route(topic: str) -> TopicNotExist:
    """Return the error for a topic without a route. The wording is that of name servers; clients match on it."""
    error = TopicNotExist(f"No topic route info in name server for the topic: {topic}")
    error.topic = topic
    return error
