"""The statistics of Envoy's RocketMQ filter, under Envoy's names (`stats.h` of its rocketmq_proxy).

Envoy writes six of them never, and its filter knows nothing but remoting: what speaks gRPC is not counted here, but
for answers of brokers and what waits for them.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum

from proxy.core.context import Context
from proxy.observability.metrics.connections import Connections
from proxy.observability.metrics.family import Distribution, Family, Kind, Samples
from proxy.observability.metrics.requests import BOUNDS, Requests
from proxy.observability.metrics.upstream import Upstreams
from remoting.codes import RequestCode

_SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)
_ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


class Type(StrEnum):
    """As `/stats?type=` has them."""

    COUNTERS = "Counters"
    GAUGES = "Gauges"
    HISTOGRAMS = "Histograms"
    # Of these there are none here.
    TEXT_READOUTS = "TextReadouts"


@dataclass(frozen=True, slots=True)
class Stat:
    """One of them. used: the counter that says whether it was ever written; itself where it is one."""

    name: str
    type: Type
    text: str
    read: Callable[["View"], int]
    used: str = ""


class View:
    """The numbers of one moment, each counted once however many statistics they go into."""

    def __init__(self, envoy: "Envoy") -> None:
        self.codes: Counter[str] = Counter()
        for (protocol, code, _), count in envoy.requests.answers().items():
            if protocol == "remoting":
                self.codes[code] += count
        in_flight = [context for context in envoy.in_flight() if context.channel.protocol == "remoting"]
        self.active = Counter(context.code for context in in_flight)
        # A broker has not been asked yet: the topic's route or the broker's address is being looked up.
        self.pending = Counter(context.code for context in in_flight if context.sent is None)
        self.undecodable = envoy.connections.sums()["remoting", "undecodable"]
        self.decoded = self.codes.total() + len(in_flight)
        outcomes = envoy.requests.outcomes("remoting")
        self.well, self.badly = outcomes[True], outcomes[False]
        self.answers = envoy.upstreams.answers() if envoy.answers is None else envoy.answers()
        self.undecodable_answers = envoy.upstreams.undecodable()
        self.maintenance = envoy.maintenance()

    def count(self, *codes: RequestCode) -> int:
        """Requests with these codes that were answered."""
        return sum(self.codes[code.name] for code in codes)

    def waiting(self) -> int:
        """Requests that Envoy has a gauge of pending ones for."""
        return sum(self.pending[code] for code in (*_SENDS, RequestCode.POP_MESSAGE, _ROUTE))


def _counter(name: str, text: str, read: Callable[[View], int]) -> Stat:
    return Stat(name, Type.COUNTERS, text, read, name)


def _of_code(name: str, code: RequestCode) -> Stat:
    return _counter(name, f"{code.name} requests that were answered.", lambda view: view.count(code))


def _active(name: str, code: RequestCode, used: str) -> Stat:
    return Stat(name, Type.GAUGES, f"{code.name} requests under way.", lambda view: view.active[code], used)


STATS = (
    _counter("request", "Requests that arrived, decodable or not.", lambda view: view.decoded + view.undecodable),
    _counter(
        "request_decoding_error", "Requests with a frame or header that cannot be.", lambda view: view.undecodable
    ),
    _counter("request_decoding_success", "Requests that could be read.", lambda view: view.decoded),
    _counter("response", "Answers of brokers, readable or not.", lambda view: view.answers + view.undecodable_answers),
    _counter(
        "response_decoding_error",
        "Answers of brokers with a frame or header that cannot be.",
        lambda view: view.undecodable_answers,
    ),
    _counter("response_decoding_success", "Answers of brokers that could be read.", lambda view: view.answers),
    _counter("response_error", "Requests that were answered with an error.", lambda view: view.badly),
    _counter("response_success", "Requests that were answered without one.", lambda view: view.well),
    _of_code("heartbeat", RequestCode.HEART_BEAT),
    _of_code("unregister", RequestCode.UNREGISTER_CLIENT),
    _of_code("get_topic_route", _ROUTE),
    _of_code("send_message_v1", RequestCode.SEND_MESSAGE),
    _of_code("send_message_v2", RequestCode.SEND_MESSAGE_V2),
    _of_code("pop_message", RequestCode.POP_MESSAGE),
    _of_code("ack_message", RequestCode.ACK_MESSAGE),
    _of_code("get_consumer_list", RequestCode.GET_CONSUMER_LIST_BY_GROUP),
    _counter(
        "maintenance_failure", "Requests that were refused because of maintenance.", lambda view: view.maintenance
    ),
    Stat("request_active", Type.GAUGES, "Requests under way.", lambda view: view.active.total(), "request"),
    _active("send_message_v1_active", RequestCode.SEND_MESSAGE, "send_message_v1"),
    _active("send_message_v2_active", RequestCode.SEND_MESSAGE_V2, "send_message_v2"),
    _active("pop_message_active", RequestCode.POP_MESSAGE, "pop_message"),
    _active("get_topic_route_active", _ROUTE, "get_topic_route"),
    Stat(
        "send_message_pending",
        Type.GAUGES,
        "Sends whose broker is still to be found.",
        lambda view: sum(view.pending[code] for code in _SENDS),
        "request",
    ),
    Stat(
        "pop_message_pending",
        Type.GAUGES,
        "POP_MESSAGE requests whose broker is still to be found.",
        lambda view: view.pending[RequestCode.POP_MESSAGE],
        "pop_message",
    ),
    Stat(
        "get_topic_route_pending",
        Type.GAUGES,
        "Requests for routes that wait for the name servers.",
        lambda view: view.pending[_ROUTE],
        "get_topic_route",
    ),
    Stat("total_pending", Type.GAUGES, "All that is pending.", lambda view: view.waiting(), "request"),
)
REQUEST_TIME = "request_time_ms"
_KINDS = {Type.COUNTERS: Kind.COUNTER, Type.GAUGES: Kind.GAUGE}
FAMILIES = {
    stat.name: Family(f"gantry_envoy_{stat.name}", _KINDS[stat.type], f"Envoy's {stat.name}. {stat.text}")
    for stat in STATS
}
# Prometheus wants seconds.
TIME_FAMILY = Family(
    "gantry_envoy_request_seconds",
    Kind.HISTOGRAM,
    f"Envoy's {REQUEST_TIME}, in seconds. Remoting requests, from their arrival to their answer.",
    bounds=BOUNDS,
)


@dataclass(slots=True)
class Envoy:
    """Where the numbers come from. `flush` it every few seconds, as Envoy flushes its own.

    answers: those of brokers, where they come by no connection.
    """

    requests: Requests
    connections: Connections
    upstreams: Upstreams
    in_flight: Callable[[], Collection[Context]] = tuple
    maintenance: Callable[[], int] = int
    answers: Callable[[], int] | None = None
    # The histogram at the last flush, and what came in the interval before that.
    _flushed: Distribution | None = None
    _interval: Distribution | None = None

    def flush(self) -> None:
        """An interval ends."""
        now = self.requests.latency("remoting")
        self._interval = now if self._flushed is None else now.since(self._flushed)
        self._flushed = now

    def values(self) -> dict[str, int]:
        """Every counter and gauge by name."""
        view = View(self)
        return {stat.name: stat.read(view) for stat in STATS}

    def request_time(self) -> tuple[Distribution, Distribution]:
        """Seconds: of the last whole interval, and of all requests."""
        return self._interval or Distribution.over(BOUNDS), self.requests.latency("remoting")

    def read(self) -> Iterator[tuple[Family, Samples]]:
        """Every family of this module."""
        for name, value in self.values().items():
            yield FAMILIES[name], {(): value}
        yield TIME_FAMILY, {(): self.requests.latency("remoting")}
