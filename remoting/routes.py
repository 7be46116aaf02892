"""Topic routes and cluster metadata: parsing, merging and encoding for clients."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson

from remoting import fastjson
from remoting.errors import BodyError
from remoting.fastjson import load_object
from remoting.messages import Permission

# Broker ids in a route: 0 is the master.
MASTER_ID = 0
# Plain integers, because IntFlag arithmetic is slow.
_READ, _WRITE = int(Permission.READ), int(Permission.WRITE)
# Queues of a topic on one broker. Requests of gRPC clients list each of them.
_MAX_QUEUES = 65_536
_MAX_QUEUE_DIGITS = 5


def _queue_count(value: Any) -> int:
    """Return the number of queues in a route, at most _MAX_QUEUES. Raises BodyError."""
    text = str(value)
    if not (text.isascii() and text.isdecimal()):
        raise BodyError(f"a route has {text[:20]!r} queues")
    return min(int(text), _MAX_QUEUES) if len(text) <= _MAX_QUEUE_DIGITS else _MAX_QUEUES


@dataclass(frozen=True)
class TopicRoute:
    """A topic's route from a name server; `data` is TopicRouteData and must not be changed."""

    topic: str
    data: dict[str, Any]
    brokers: tuple[str, ...]

    @cached_property
    def queues(self) -> tuple["BrokerQueues", ...]:
        """The topic's queues by broker, sorted by broker name, without brokers that have no live replica."""
        addresses = {broker["brokerName"]: broker["brokerAddrs"] for broker in self.data["brokerDatas"]}
        queues = [
            BrokerQueues(
                str(q["brokerName"]),
                MASTER_ID in addresses[q["brokerName"]],
                int(q["perm"]),
                _queue_count(q["readQueueNums"]),
                _queue_count(q["writeQueueNums"]),
            )
            for q in self.data["queueDatas"]
            if addresses.get(q["brokerName"])
        ]
        return tuple(sorted(queues, key=lambda broker_queues: broker_queues.broker))

    def readable(self) -> tuple[str, ...]:
        """Return the names of the brokers that have readable queues of the topic, sorted."""
        return tuple(queues.broker for queues in self.queues if queues.readable)

    @cached_property
    def writable(self) -> tuple[tuple[str, int], ...]:
        """Broker name and queue id of each writable queue, sorted.

        If the topic has a fixed order (`orderTopicConf`, "broker:queues;…"), the order lists the writable queues.
        """
        masters = {broker["brokerName"] for broker in self.data["brokerDatas"] if MASTER_ID in broker["brokerAddrs"]}
        counts = {queues.broker: queues.writable for queues in self.queues}
        if order := self.data.get("orderTopicConf"):
            pairs = (item.partition(":") for item in str(order).split(";") if item)
            counts = {name: _queue_count(count) for name, _, count in pairs if name in masters and count.isdecimal()}
        return tuple((broker, number) for broker in sorted(counts) for number in range(counts[broker]))


@dataclass(frozen=True, slots=True)
class BrokerQueues:
    """A topic's queues on one broker.

    Attributes:
        master: whether the broker has a master now.
        permission: bits of `messages.Permission`.
        read, write: numbers of queues to read and to write, regardless of the permission.
    """

    broker: str
    master: bool
    permission: int
    read: int
    write: int

    @property
    def count(self) -> int:
        """The number of queues."""
        return max(self.read, self.write)

    @property
    def readable(self) -> int:
        """The number of readable queues, with ids from 0 on."""
        return self.read if self.permission & _READ else 0

    @property
    def writable(self) -> int:
        """The number of queues that are writable now, with ids from 0 on."""
        return self.write if self.master and self.permission & _WRITE else 0


def parse(topic: str, body: bytes) -> TopicRoute:
    """Parse a TopicRouteData body, standard JSON or fastjson's dialect. Raises BodyError."""
    data = load_object(body)
    data["queueDatas"] = data.get("queueDatas") or []
    data["brokerDatas"] = data.get("brokerDatas") or []
    try:
        names = tuple(sorted({str(broker["brokerName"]) for broker in data["brokerDatas"]}))
        for broker in data["brokerDatas"]:
            broker["brokerAddrs"] = {int(key): str(address) for key, address in broker["brokerAddrs"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BodyError(f"a route lacks {error}") from None
    return TopicRoute(topic, data, names)


def merge_routes(routes: Sequence[TopicRoute]) -> TopicRoute:
    """Merge the routes of a topic from several name servers; the first route with a broker wins."""
    first = routes[0]
    if all(set(route.brokers) <= set(first.brokers) for route in routes):
        return first
    data = dict(first.data)
    for key in ("queueDatas", "brokerDatas"):
        items = {item["brokerName"]: item for route in reversed(routes) for item in route.data[key]}
        data[key] = [items[name] for name in sorted(items)]
    return TopicRoute(first.topic, data, tuple(sorted({name for route in routes for name in route.brokers})))


def encode(route: TopicRoute, address: Callable[[str], str], standard_json: bool) -> bytes:
    """Encode a route for a client, with all addresses of a broker replaced by `address(broker name)`."""
    data = dict(route.data)
    data["brokerDatas"] = [
        {**broker, "brokerAddrs": dict.fromkeys(broker["brokerAddrs"], address(broker["brokerName"]))}
        for broker in route.data["brokerDatas"]
    ]
    if standard_json:
        return orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS)
    return fastjson.dumps(data)


@dataclass(frozen=True)
class Replicas:
    """The brokers of one broker name: addresses by broker id."""

    name: str
    cluster: str
    addresses: dict[int, str]
    acting_master: bool = False

    @cached_property
    def master(self) -> str | None:
        """The master's address, if one is registered."""
        return self.addresses.get(MASTER_ID)

    @cached_property
    def masters(self) -> list[str]:
        """The master's address in a list; empty if no master is registered."""
        return [] if self.master is None else [self.master]

    @cached_property
    def slaves(self) -> list[str]:
        """The slaves' addresses by id. The one with the lowest id acts as master if there is none."""
        return [address for number, address in sorted(self.addresses.items()) if number != MASTER_ID]

    @cached_property
    def all(self) -> list[str]:
        """All addresses, the master's first."""
        return [*self.masters, *self.slaves]


def parse_cluster(body: bytes) -> dict[str, Replicas]:
    """Parse a ClusterInfo body into brokers by name. Raises BodyError."""
    try:
        table = (load_object(body).get("brokerAddrTable") or {}).values()
        return {broker.name: broker for broker in map(_replicas, table)}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BodyError(f"a cluster's description lacks {error}") from None


def _replicas(data: dict[str, Any]) -> Replicas:
    return Replicas(
        str(data["brokerName"]),
        str(data.get("cluster") or ""),
        {int(key): str(address) for key, address in data["brokerAddrs"].items()},
        bool(data.get("enableActingMaster")),
    )


def merge_clusters(views: Iterable[dict[str, Replicas]]) -> dict[str, Replicas]:
    """Merge the brokers of several name servers; the first view of an address wins.

    A broker is included if any name server has it, because one of them may have lost it (a partition, a restart), and
    a dead broker refuses the connection at once.
    """
    merged: dict[str, Replicas] = {}
    for view in views:
        for name, replicas in view.items():
            first = merged.get(name)
            merged[name] = replicas if first is None else _merge_replicas(first, replicas)
    return merged


def _merge_replicas(first: Replicas, second: Replicas) -> Replicas:
    # An address must not have two ids: after a failover, a stale view has the new master as a slave.
    more = {n: a for n, a in second.addresses.items() if a not in first.addresses.values()}
    return Replicas(first.name, first.cluster, {**more, **first.addresses}, first.acting_master or second.acting_master)
