"""Kinds of requests, for the request table."""

from enum import StrEnum


class RequestKind(StrEnum):
    """Effect of a request on messages, for the requests that several modules treat alike."""

    SEND = "send"
    REPLY = "reply"  # sends the reply message of a request-reply, which brokers push to the requesting client
    SEND_BACK = "send back"
    PULL = "pull"
    POP = "pop"
    PEEK = "peek"
    ACK = "ack"
    CHANGE_INVISIBLE = "change invisible"
    COMMIT = "commit"
    LOOKUP = "lookup"  # returns messages without consuming them
    OTHER = "other"


class Created(StrEnum):
    """The object that a broker creates for a request that names one without a configuration, if it is configured so."""

    TOPIC = "topic"
    GROUP = "group"
