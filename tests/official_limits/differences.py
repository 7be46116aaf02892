"""The differences from the official proxy that are on purpose, and their table in the documentation.

`python -m tests.official_limits.differences` writes the table.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.paths import ROOT

PAGE = ROOT / "docs" / "official-proxy.md"
_BEGIN, _END = "<!-- {} limits: begin -->\n", "<!-- {} limits: end -->\n"
# Code in place of Gantry's, if it is the broker's.
BROKERS = "the broker's answer"


@dataclass(frozen=True, slots=True)
class Difference:
    """Requests that Gantry answers with another code.

    labels: beginnings of the cases' labels. code: Gantry's code. official: the official proxy's, for the reader.
    newer_brokers: whether brokers before RocketMQ 5.5 answer as the official proxy does.
    """

    subject: str
    labels: tuple[str, ...]
    official: str
    code: str
    reason: str
    newer_brokers: bool = False


DIFFERENCES = (
    Difference(
        "a receipt handle that cannot be read",
        ("ack, handle", "ack: two bad handles", "change, handle", "dead letter, handle"),
        "INTERNAL_SERVER_ERROR",
        "INVALID_RECEIPT_HANDLE",
        "consumers repeat every other error for ever",
    ),
    Difference(
        "a transaction id that no broker has issued",
        ("transaction id: garbage", "transaction id: message id missing"),
        "INTERNAL_SERVER_ERROR",
        "INVALID_TRANSACTION_ID",
        "a retry cannot help: brokers are asked about ids that a replica does not know",
    ),
    Difference(
        "a recall handle that cannot be read",
        ("recall: no handle", "recall: garbage"),
        "INTERNAL_SERVER_ERROR",
        "BAD_REQUEST",
        "a retry cannot help",
    ),
    Difference(
        "a SQL filter that cannot be parsed",
        ("filter: SQL that cannot be parsed",),
        "INTERNAL_SERVER_ERROR",
        "ILLEGAL_FILTER_EXPRESSION",
        "a retry cannot help",
    ),
    Difference(
        "a filter expression over 16 KiB",
        ("filter: 17 KiB",),
        "accepted",
        "ILLEGAL_FILTER_EXPRESSION",
        "it is kept in memory and sent with every receive",
    ),
    Difference(
        "a send to a topic that does not exist",
        ("send, topic: 127 characters", "send, topic: percent and bar", "send, topic: unknown"),
        "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE",
        "TOPIC_NOT_FOUND",
        "it names the reason",
    ),
    Difference(
        "all properties together over the broker's limit of 32 KiB",
        ("trace context: 33 KiB",),
        "INTERNAL_SERVER_ERROR",
        "MESSAGE_CORRUPTED",
        "a retry cannot help",
    ),
    Difference(
        "a user property without a name",
        ("user property key: empty",),
        "accepted",
        "ILLEGAL_MESSAGE_PROPERTY_KEY",
        "consumers would not get it",
    ),
    Difference(
        "control characters in the message id",
        ("message id: control character",),
        "accepted",
        "ILLEGAL_MESSAGE_ID",
        "U+0001 and U+0002 separate stored properties, so that a value could forge others",
    ),
    Difference(
        "control characters in trace context or born host",
        ("trace context: control character", "born host: control character"),
        "accepted",
        "ILLEGAL_MESSAGE_PROPERTY_KEY",
        "as for the message id",
    ),
    Difference(
        "a negative recovery duration of a transaction",
        ("recovery: negative",),
        "accepted",
        "BAD_REQUEST",
        "brokers would check the transaction at once",
    ),
    Difference(
        "a gzip body of more than 4 MiB decompressed",
        ("body: gzip of 4 MiB + 1",),
        "accepted",
        "MESSAGE_BODY_TOO_LARGE",
        "a small message could fill the memory of its consumers",
    ),
    Difference(
        "a receive of a negative number of messages",
        ("batch: negative",),
        "INTERNAL_SERVER_ERROR",
        "MESSAGE_NOT_FOUND",
        "it is taken for the minimum of one message",
    ),
    Difference(
        "QueryRoute and QueryAssignment without endpoints",
        ("route: no endpoints",),
        "its own address",
        "ILLEGAL_ACCESS_POINT",
        "without a set address (`advertise`), a route contains the address that the client connected to",
    ),
)


REMOTING_DIFFERENCES = (
    Difference(
        "POP_MESSAGE",
        ("pop, ",),
        "SYSTEM_ERROR",
        BROKERS,
        "the official proxy takes it for a pull",
    ),
    Difference(
        "ACK_MESSAGE and CHANGE_MESSAGE_INVISIBLETIME with a handle that the broker does not know",
        ("ack, handle", "ack, offset", "ack, queue", "ack, topic", "change, "),
        "none",
        BROKERS,
        "a client would wait until its timeout",
    ),
    Difference(
        "a send to a topic that does not exist",
        ("send, default topic: missing",),
        "MESSAGE_ILLEGAL",
        "TOPIC_NOT_EXIST",
        "it is the broker's answer, which names the reason",
    ),
    Difference(
        "a send to a topic with an illegal name",
        (
            "send, topic: empty",
            "send, topic: blank",
            "send, topic: 128",
            "send, topic: a space",
            "send, topic: a dot",
            "send, topic: a character",
            "send, topic: 300",
        ),
        "MESSAGE_ILLEGAL",
        "INVALID_PARAMETER",
        "it is the broker's answer, which names the reason",
    ),
    Difference(
        "a name over 262 characters",
        ("pull, topic: 300", "pull, group: 300"),
        "TOPIC_NOT_EXIST, SUBSCRIPTION_GROUP_NOT_EXIST",
        "INVALID_PARAMETER",
        "no such name exists, and it is not sent on",
    ),
    Difference(
        "a request without a required field",
        ("send, fields: none", "route, topic: none"),
        "MESSAGE_ILLEGAL, SYSTEM_ERROR",
        "INVALID_PARAMETER",
        "it names the field",
    ),
    Difference(
        "a request to a broker that does not exist",
        ("send, broker: unknown", "lock: an unknown broker"),
        "none",
        "SERVICE_NOT_AVAILABLE",
        "a client would wait until its timeout",
    ),
    Difference(
        "a heartbeat or lock whose body is no JSON object",
        ("heartbeat: no body", "heartbeat: no object", "heartbeat: broken", "lock: no body"),
        "SYSTEM_ERROR",
        "INVALID_PARAMETER",
        "it names the reason",
    ),
    Difference(
        "a heartbeat without a client id",
        ("heartbeat: no client id",),
        "SUCCESS",
        "INVALID_PARAMETER",
        "the client could not be a member of its groups",
    ),
    Difference(
        "a lock of no queues",
        ("lock: no queues",),
        "SYSTEM_ERROR",
        "SUCCESS",
        "it is the broker's answer",
    ),
    Difference(
        "the members of an unknown group",
        ("members of an unknown group",),
        "SYSTEM_ERROR with the text of an exception",
        "SYSTEM_ERROR",
        "the text is the broker's",
    ),
    Difference(
        "the end of a transaction that does not exist",
        ("end of a transaction: unknown",),
        "SUCCESS",
        "SYSTEM_ERROR",
        "the official proxy sends it without waiting for the broker's answer",
    ),
    Difference(
        "POP_LITE_MESSAGE",
        ("lite topic: pop",),
        "REQUEST_CODE_NOT_SUPPORTED",
        BROKERS,
        "the official proxy serves it to gRPC clients only",
        newer_brokers=True,
    ),
)


# Codes of the embedded broker where a broker of RocketMQ has another one. It fails with exceptions of its own code
# (SYSTEM_ERROR), does not judge filters that it has not been asked to evaluate, and takes any offset.
EMBEDDED_CODES = {
    "send, body: empty": "MESSAGE_ILLEGAL",
    "send, queue: no number": "INVALID_PARAMETER",
    "send, delay level: no number": "SUCCESS",
    "batch: none": "MESSAGE_ILLEGAL",
    "batch: 4 MiB + 1 together": "MESSAGE_ILLEGAL",
    "batch: truncated": "INVALID_PARAMETER",
    "pull, offset: over 64 bits": "INVALID_PARAMETER",
    "pull, filter: SQL that cannot be parsed": "SUBSCRIPTION_PARSE_FAILED",
    "pull, filter: unknown type": "SUBSCRIPTION_PARSE_FAILED",
    "offset: no number": "INVALID_PARAMETER",
    "commit: negative": "INVALID_PARAMETER",
}


def difference(label: str, differences: Sequence[Difference] = DIFFERENCES) -> Difference | None:
    """Return the difference of a case, None if both proxies answer the same."""
    return next((item for item in differences if label.startswith(item.labels)), None)


def page(text: str) -> str:
    """Return the page with the current tables."""
    return _with_table(_with_table(text, "gRPC", DIFFERENCES), "remoting", REMOTING_DIFFERENCES)


def _with_table(text: str, name: str, differences: Sequence[Difference]) -> str:
    rows = [
        f"| {item.subject} | {item.official} | {item.code} | {item.reason} |"
        for item in sorted(differences, key=lambda item: item.subject.lower())
    ]
    table = "\n".join(("| request | official proxy | Gantry | reason |", "| --- | --- | --- | --- |", *rows))
    begin, end = _BEGIN.format(name), _END.format(name)
    before, _, rest = text.partition(begin)
    return f"{before}{begin}{table}\n{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
