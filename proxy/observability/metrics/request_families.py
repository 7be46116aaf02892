"""Metric families of requests, and the actions by which messages are counted."""

from proxy.observability.metrics.family import Family, Kind
from remoting.request_kinds import RequestKind
from remoting.requests import REQUESTS

# Upper bounds of latencies in seconds. Brokers differ most between a few and a hundred milliseconds.
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_ACTION_OF_KIND = {
    RequestKind.SEND: "sent",
    RequestKind.REPLY: "sent",
    RequestKind.PULL: "pulled",
    RequestKind.POP: "popped",
    RequestKind.ACK: "acknowledged",
    RequestKind.CHANGE_INVISIBLE: "invisible_changed",
    RequestKind.SEND_BACK: "sent_back",
}
# Effect of a request or rpc on the messages that it counts, by its name.
ACTIONS: dict[str, str] = {
    **{spec.name: _ACTION_OF_KIND[spec.kind] for spec in REQUESTS.values() if spec.kind in _ACTION_OF_KIND},
    "SendMessage": "sent",
    "PullMessage": "pulled",
    "ReceiveMessage": "popped",
    "AckMessage": "acknowledged",
    "ChangeInvisibleDuration": "invisible_changed",
}
DELIVERIES = frozenset(code for code, action in ACTIONS.items() if action in ("pulled", "popped"))

_BY_REQUEST = ("protocol", "code")
REQUEST_COUNT = Family(
    "gantry_requests",
    Kind.COUNTER,
    "Answered requests and rpcs, by response code (remoting's or the v2 API's) and topic.",
    (*_BY_REQUEST, "response", "topic"),
)
LATENCY = Family(
    "rocketmq_rpc_latency",
    Kind.HISTOGRAM,
    "Milliseconds from the arrival of a request to its answer.",
    ("protocol_type", "request_code", "response_code", "is_long_polling", "result"),
    bounds=tuple(bound * 1000 for bound in BOUNDS),
)
BROKER_SECONDS = Family(
    "gantry_broker_seconds",
    Kind.HISTOGRAM,
    "Seconds of a request's latency spent waiting for brokers, long polls included.",
    _BY_REQUEST,
    bounds=BOUNDS,
)
QUEUEING_SECONDS = Family(
    "gantry_queueing_seconds",
    Kind.HISTOGRAM,
    "Seconds of a forwarded request's latency spent in the proxy: waiting for a route or a connection, and processing.",
    _BY_REQUEST,
    bounds=BOUNDS,
)
UPSTREAM_SECONDS = Family(
    "gantry_upstream_seconds",
    Kind.HISTOGRAM,
    "Seconds that a broker took to answer a client's request, by broker.",
    ("broker",),
    bounds=BOUNDS,
)
UPSTREAM_ERRORS = Family(
    "gantry_upstream_errors",
    Kind.COUNTER,
    "Forwarded requests that were answered with an error, including those whose broker could not be reached.",
    ("broker",),
)
BODY_BYTES = Family(
    "gantry_body_bytes",
    Kind.COUNTER,
    "Bytes of the bodies of requests (in) and answers (out).",
    (*_BY_REQUEST, "direction"),
)
MESSAGES = Family(
    "gantry_messages",
    Kind.COUNTER,
    "Messages, by action: sent, pulled, popped, acknowledged, invisible_changed, sent_back,"
    " dead_letter (of remoting clients, also in sent_back).",
    ("protocol", "action"),
)
DEAD_LETTERS = Family(
    "rocketmq_send_to_dlq_messages",
    Kind.COUNTER,
    "Messages that went to the dead letter queue of a group, as far as Gantry knows: see Dead letters in Metrics.",
    ("topic", "consumer_group", "is_system"),
)
REDELIVERIES = Family(
    "gantry_redeliveries",
    Kind.COUNTER,
    "Answers with at least one message that was delivered before.",
    ("protocol",),
)
_IN_LABELS = ("topic", "is_system")
_OUT_LABELS = ("topic", "consumer_group", "is_system", "is_retry")
MESSAGES_IN = Family("rocketmq_messages_in", Kind.COUNTER, "Messages sent by producers.", _IN_LABELS)
MESSAGES_OUT = Family("rocketmq_messages_out", Kind.COUNTER, "Messages delivered to consumers.", _OUT_LABELS)
THROUGHPUT_IN = Family("rocketmq_throughput_in", Kind.COUNTER, "Body bytes sent by producers.", _IN_LABELS)
THROUGHPUT_OUT = Family("rocketmq_throughput_out", Kind.COUNTER, "Body bytes delivered to consumers.", _OUT_LABELS)
