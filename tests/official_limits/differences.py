"""The differences from the official proxy that are on purpose, and their table in the documentation.

`python -m tests.official_limits.differences` writes the table.
"""

from dataclasses import dataclass

from tests.paths import ROOT

PAGE = ROOT / "docs" / "official-proxy.md"
_BEGIN, _END = "<!-- limits: begin -->\n", "<!-- limits: end -->\n"


@dataclass(frozen=True, slots=True)
class Difference:
    """Requests that Gantry answers with another code.

    labels: beginnings of the cases' labels. code: Gantry's code. official: the official proxy's, for the reader.
    """

    subject: str
    labels: tuple[str, ...]
    official: str
    code: str
    reason: str


DIFFERENCES = (
    Difference(
        "a receipt handle that cannot be read",
        ("ack, handle", "ack: two bad handles", "change, handle", "dead letter, handle"),
        "INTERNAL_SERVER_ERROR",
        "INVALID_RECEIPT_HANDLE",
        "consumers repeat every other error for ever",
    ),
    Difference(
        "a transaction id that the proxy has not issued",
        ("transaction id: garbage", "transaction id: message id missing"),
        "INTERNAL_SERVER_ERROR",
        "INVALID_TRANSACTION_ID",
        "a retry cannot help; an id of Gantry contains all facts, so that every replica knows it",
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


def difference(label: str) -> Difference | None:
    """Return the difference of a case, None if both proxies answer the same."""
    return next((item for item in DIFFERENCES if label.startswith(item.labels)), None)


def page(text: str) -> str:
    """Return the page with the current table."""
    rows = [
        f"| {item.subject} | {item.official} | {item.code} | {item.reason} |"
        for item in sorted(DIFFERENCES, key=lambda item: item.subject.lower())
    ]
    table = "\n".join(("| request | official proxy | Gantry | reason |", "| --- | --- | --- | --- |", *rows))
    before, _, rest = text.partition(_BEGIN)
    return f"{before}{_BEGIN}{table}\n{_END}{rest.partition(_END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
