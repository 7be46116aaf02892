"""Statistics of Envoy's RocketMQ filter, by Envoy's names (`stats.h` of its rocketmq_proxy).

Envoy defines six of them without ever writing them. Its filter supports remoting only: gRPC calls are not counted here,
except for the brokers' responses and pending requests that they cause.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum

from proxy.core.context import Context
from proxy.observability.metrics.connections import ConnectionCounts
from proxy.observability.metrics.family import Distribution, Family, Kind, Samples
from proxy.observability.metrics.request_counts import RequestCounts
from proxy.observability.metrics.request_families import BOUNDS
from proxy.observability.metrics.upstream import UpstreamCounts
from remoting.codes import RequestCode

# The two sends that Envoy's filter knows.
_ENVOY_SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)
_ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


class StatType(StrEnum):
    """Values of `/stats?type=`."""

    COUNTERS = "Counters"
    GAUGES = "Gauges"
    HISTOGRAMS = "Histograms"
    # Supported as a filter; there are none.
    TEXT_READOUTS = "TextReadouts"


@dataclass(frozen=True, slots=True)
class Stat:
    """A statistic. used_with: name of the counter that decides `usedonly`; a counter's is its own."""

    name: str
    type: StatType
    help: str
    read: Callable[["View"], int]
    used_with: str = ""


class View:
    """Counts at one moment, each computed once for all statistics that use it."""

    def __init__(self, envoy: "EnvoyStatistics") -> None:
        self.codes: Counter[str] = Counter()
        for (protocol, code, _), count in envoy.requests.answers().items():
            if protocol == "remoting":
                self.codes[code] += count
        in_flight = [context for context in envoy.in_flight() if context.channel.protocol == "remoting"]
        self.active = Counter(context.code for context in in_flight)
        # Requests that wait for the topic's route or the broker's address.
        self.pending = Counter(context.code for context in in_flight if context.sent is None)
        self.undecodable = envoy.connections.sums()["remoting", "undecodable"]
        self.decoded = self.codes.total() + len(in_flight)
        outcomes = envoy.requests.outcomes("remoting")
        self.succeeded, self.failed = outcomes[True], outcomes[False]
        self.responses = envoy.upstreams.responses() if envoy.responses is None else envoy.responses()
        self.undecodable_responses = envoy.upstreams.undecodable()
        self.maintenance = envoy.maintenance()

    def count(self, *codes: RequestCode) -> int:
        """Return the number of answered requests with these codes."""
        return sum(self.codes[code.name] for code in codes)

    def total_pending(self) -> int:
        """Return the number of pending requests of the codes for which Envoy has a gauge."""
        return sum(self.pending[code] for code in (*_ENVOY_SENDS, RequestCode.POP_MESSAGE, _ROUTE))


def _counter(name: str, text: str, read: Callable[[View], int]) -> Stat:
    return Stat(name, StatType.COUNTERS, text, read, name)


def _answered(name: str, code: RequestCode) -> Stat:
    return _counter(name, f"{code.name} requests answered.", lambda view: view.count(code))


def _active(name: str, code: RequestCode, used_with: str) -> Stat:
    return Stat(name, StatType.GAUGES, f"In-flight {code.name} requests.", lambda view: view.active[code], used_with)


STATS = (
    _counter(
        "request",
        "Requests received, including those that cannot be decoded.",
        lambda view: view.decoded + view.undecodable,
    ),
    _counter("request_decoding_error", "Requests with an invalid frame or header.", lambda view: view.undecodable),
    _counter("request_decoding_success", "Requests that were decoded.", lambda view: view.decoded),
    _counter(
        "response",
        "Responses of brokers, including those that cannot be decoded.",
        lambda view: view.responses + view.undecodable_responses,
    ),
    _counter(
        "response_decoding_error",
        "Responses of brokers with an invalid frame or header.",
        lambda view: view.undecodable_responses,
    ),
    _counter("response_decoding_success", "Responses of brokers that were decoded.", lambda view: view.responses),
    _counter("response_error", "Requests answered with an error.", lambda view: view.failed),
    _counter("response_success", "Requests answered without an error.", lambda view: view.succeeded),
    _answered("heartbeat", RequestCode.HEART_BEAT),
    _answered("unregister", RequestCode.UNREGISTER_CLIENT),
    _answered("get_topic_route", _ROUTE),
    _answered("send_message_v1", RequestCode.SEND_MESSAGE),
    _answered("send_message_v2", RequestCode.SEND_MESSAGE_V2),
    _answered("pop_message", RequestCode.POP_MESSAGE),
    _answered("ack_message", RequestCode.ACK_MESSAGE),
    _answered("get_consumer_list", RequestCode.GET_CONSUMER_LIST_BY_GROUP),
    _counter("maintenance_failure", "Requests rejected by maintenance rules.", lambda view: view.maintenance),
    Stat("request_active", StatType.GAUGES, "In-flight requests.", lambda view: view.active.total(), "request"),
    _active("send_message_v1_active", RequestCode.SEND_MESSAGE, "send_message_v1"),
    _active("send_message_v2_active", RequestCode.SEND_MESSAGE_V2, "send_message_v2"),
    _active("pop_message_active", RequestCode.POP_MESSAGE, "pop_message"),
    _active("get_topic_route_active", _ROUTE, "get_topic_route"),
    Stat(
        "send_message_pending",
        StatType.GAUGES,
        "Sends that wait for a route or a broker address.",
        lambda view: sum(view.pending[code] for code in _ENVOY_SENDS),
        "request",
    ),
    Stat(
        "pop_message_pending",
        StatType.GAUGES,
        "POP_MESSAGE requests that wait for a route or a broker address.",
        lambda view: view.pending[RequestCode.POP_MESSAGE],
        "pop_message",
    ),
    Stat(
        "get_topic_route_pending",
        StatType.GAUGES,
        "Route requests that wait for the name servers.",
        lambda view: view.pending[_ROUTE],
        "get_topic_route",
    ),
    Stat(
        "total_pending", StatType.GAUGES, "Sum of the pending requests.", lambda view: view.total_pending(), "request"
    ),
)
REQUEST_TIME = "request_time_ms"
_KINDS = {StatType.COUNTERS: Kind.COUNTER, StatType.GAUGES: Kind.GAUGE}
FAMILIES = {
    stat.name: Family(f"gantry_envoy_{stat.name}", _KINDS[stat.type], f"Envoy's {stat.name}. {stat.help}")
    for stat in STATS
}
# Prometheus' base unit is seconds.
TIME_FAMILY = Family(
    "gantry_envoy_request_seconds",
    Kind.HISTOGRAM,
    f"Envoy's {REQUEST_TIME}, in seconds. From the arrival of a remoting request to its answer.",
    bounds=BOUNDS,
)


@dataclass(slots=True)
class EnvoyStatistics:
    """Computes the statistics from the counts of the proxy. `flush` must be called every few seconds, as Envoy does.

    in_flight, maintenance: return the in-flight requests and the number of requests rejected by maintenance rules.
    responses: returns the number of brokers' responses; None: counted by the upstream connections.
    """

    requests: RequestCounts
    connections: ConnectionCounts
    upstreams: UpstreamCounts
    in_flight: Callable[[], Collection[Context]] = tuple
    maintenance: Callable[[], int] = int
    responses: Callable[[], int] | None = None
    # The histogram at the last flush, and the observations of the interval that it ended.
    _flushed: Distribution | None = None
    _interval: Distribution | None = None

    def flush(self) -> None:
        """End an interval of the histogram."""
        latency = self.requests.latency("remoting")
        self._interval = latency if self._flushed is None else latency.since(self._flushed)
        self._flushed = latency

    def values(self) -> dict[str, int]:
        """Return every counter and gauge by name."""
        view = View(self)
        return {stat.name: stat.read(view) for stat in STATS}

    def request_time(self) -> tuple[Distribution, Distribution]:
        """Return latencies in seconds: of the last complete interval, and of all requests."""
        return self._interval or Distribution.empty(BOUNDS), self.requests.latency("remoting")

    def read(self) -> Iterator[tuple[Family, Samples]]:
        """Yield the families of this module."""
        for name, value in self.values().items():
            yield FAMILIES[name], {(): value}
        yield TIME_FAMILY, {(): self.requests.latency("remoting")}
