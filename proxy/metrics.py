"""Counters: plain dicts that the event loop increments, turned into Prometheus metrics when scraped."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from grpc import StatusCode
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from protocol_negotiation.peer import HostPort
from proxy.observation import Observation


class Metrics(Collector):
    """What is counted. `sources` are gauges and counters that others keep: (name, help, labels, read)."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.rpcs: Counter[tuple[str, int]] = Counter()
        self.rpc_seconds: Counter[str] = Counter()
        # Calls that have ended, by method and gRPC status, where somebody counts them.
        self.calls: Callable[[], Mapping[tuple[str, StatusCode], int]] = dict
        self.negotiations: Counter[str] = Counter()
        self.closed: Counter[str] = Counter()
        self.changes: Counter[str] = Counter()
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self._counters: list[tuple[str, str, str, Mapping[str, int]]] = [
            ("gantry_negotiations", "Connections by the outcome of negotiation.", "outcome", self.negotiations),
            ("gantry_connections_closed", "Remoting connections that ended, by cause.", "cause", self.closed),
            ("gantry_group_changes", "Clients that joined or left a consumer group.", "change", self.changes),
        ]

    def observe(self, seen: Observation) -> None:
        """Observer: one request has been answered."""
        if seen.protocol == "remoting":
            self.requests[seen.code, seen.response] += 1
        else:
            self.rpcs[seen.code, seen.response] += 1
            self.rpc_seconds[seen.code] += seen.seconds  # type: ignore[assignment]

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Show a value that somebody else keeps."""
        self._gauges[name] = (text, read)

    def counter(self, name: str, text: str, label: str, counts: Mapping[str, int]) -> None:
        """Show counts that somebody else keeps, by one label."""
        self._counters.append((name, text, label, counts))

    def collect(self) -> Iterable[Metric]:
        """All metrics, as prometheus_client asks for them."""
        requests = CounterMetricFamily(
            "gantry_requests", "Requests by code and response code.", labels=["code", "response"]
        )
        for (code, response), count in list(self.requests.items()):
            requests.add_metric([code, str(response)], count)
        yield requests
        rpcs = CounterMetricFamily("gantry_rpcs", "gRPC calls by rpc and v2 code.", labels=["rpc", "code"])
        for (rpc, answer), count in list(self.rpcs.items()):
            rpcs.add_metric([rpc, str(answer)], count)
        yield rpcs
        seconds = CounterMetricFamily("gantry_rpc_seconds", "Time that gRPC calls took.", labels=["rpc"])
        for rpc, total in list(self.rpc_seconds.items()):
            seconds.add_metric([rpc], total)
        yield seconds
        calls = CounterMetricFamily(
            "gantry_grpc_calls", "Calls of all gRPC services by method and gRPC status.", labels=["method", "status"]
        )
        for (method, status), count in list(self.calls().items()):
            calls.add_metric([method, status.name], count)
        yield calls
        for name, text, label, counts in self._counters:
            family = CounterMetricFamily(name, text, labels=[label])
            for value, count in list(counts.items()):
                family.add_metric([value], count)
            yield family
        for name, (text, read) in self._gauges.items():
            yield GaugeMetricFamily(name, text, value=read())


def serve(metrics: Metrics, address: str) -> Callable[[], None]:
    """Serve the metrics over HTTP, in a thread of its own; returns how to stop it."""
    where = HostPort.parse(address)
    registry = CollectorRegistry()
    registry.register(metrics)
    server, thread = start_http_server(where.port, where.host or "0.0.0.0", registry)

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop
