"""Failures of operations as values, so that one worker can report them to another."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from proxy.operations.broker_requests import BrokerRefused
from remoting.codes import ResponseCode
from remoting.errors import (
    BodyError,
    ConsumerNotOnline,
    Overloaded,
    RemotingError,
    RequestTimeout,
    ServiceUnavailable,
    TopicNotExist,
)


class FailureKind(IntEnum):
    """Why an operation failed, numbered like HTTP status codes; of several failures the greatest is reported."""

    FORBIDDEN = 403
    NOT_FOUND = 404
    CONFLICT = 409
    INVALID = 422
    TOO_MANY = 429
    INTERNAL = 500
    BAD_REPLY = 502
    UNAVAILABLE = 503
    TIMEOUT = 504


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed operation. faults: place and description of each mistake in the request."""

    kind: FailureKind
    detail: str
    faults: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class WorkerOutcome:
    """The outcome of an operation at one worker. failure: None after a success."""

    worker: int
    failure: Failure | None


class OperationFailed(Exception):
    """An operation failed.

    missing_workers: numbers of workers that did not reply. outcomes: those of the others, where they differ.
    """

    def __init__(
        self, failure: Failure, missing_workers: Sequence[int] = (), outcomes: Sequence[WorkerOutcome] = ()
    ) -> None:
        super().__init__(failure.detail)
        self.failure = failure
        self.missing_workers = sorted(missing_workers)
        self.outcomes = outcomes


def not_found(detail: str) -> OperationFailed:
    """Return the error for a subject that does not exist."""
    return OperationFailed(Failure(FailureKind.NOT_FOUND, detail))


def conflict(detail: str) -> OperationFailed:
    """Return the error for a request that the subject's state forbids."""
    return OperationFailed(Failure(FailureKind.CONFLICT, detail))


# Broker response codes for subjects that do not exist.
_ABSENT = frozenset(
    (
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.CONSUMER_NOT_ONLINE,
        ResponseCode.QUERY_NOT_FOUND,
    )
)
# The first matching class applies.
_KINDS: tuple[tuple[type[Exception], FailureKind], ...] = (
    (TopicNotExist, FailureKind.NOT_FOUND),
    (ConsumerNotOnline, FailureKind.NOT_FOUND),
    (ServiceUnavailable, FailureKind.UNAVAILABLE),
    (Overloaded, FailureKind.UNAVAILABLE),
    (RequestTimeout, FailureKind.TIMEOUT),
    (BodyError, FailureKind.BAD_REPLY),
    (RemotingError, FailureKind.CONFLICT),
)
INTERNAL_ERROR = "internal error; the replica's log has the details"


def failure_of(error: Exception) -> Failure:
    """Return the failure that an exception stands for; INTERNAL for an unexpected one."""
    if isinstance(error, OperationFailed):
        return error.failure
    if isinstance(error, TimeoutError):
        return Failure(FailureKind.TIMEOUT, "no reply came in time")
    if isinstance(error, BrokerRefused) and error.answer in _ABSENT:
        return Failure(FailureKind.NOT_FOUND, str(error))
    if isinstance(error, TopicNotExist) and error.topic is not None:
        # Operators see no remark of a name server.
        return Failure(FailureKind.NOT_FOUND, f"there is no topic {error.topic}")
    for kind, failure_kind in _KINDS:
        if isinstance(error, kind):
            return Failure(failure_kind, str(error))
    return Failure(FailureKind.INTERNAL, INTERNAL_ERROR)
