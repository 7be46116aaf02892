"""Topic routes: which brokers hold a topic, and the answer that a client gets."""

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
# Plain numbers, because arithmetic with an IntFlag is slow.
_READ, _WRITE = int(Permission.READ), int(Permission.WRITE)


@dataclass(frozen=True)
class TopicRoute:
    """A topic's route as the name server gave it; `data` is TopicRouteData and is never changed."""

    topic: str
    data: dict[str, Any]
    brokers: tuple[str, ...]

    @cached_property
    def queues(self) -> tuple["BrokerQueues", ...]:
        """The topic's queues by broker, sorted by broker name; brokers without a live replica are left out."""
        alive = {broker["brokerName"]: broker["brokerAddrs"] for broker in self.data["brokerDatas"]}
        found = [
            BrokerQueues(
                str(q["brokerName"]),
                MASTER_ID in alive[q["brokerName"]],
                int(q["perm"]),
                int(q["readQueueNums"]),
                int(q["writeQueueNums"]),
            )
            for q in self.data["queueDatas"]
            if alive.get(q["brokerName"])
        ]
        return tuple(sorted(found, key=lambda queues: queues.broker))

    def readable(self) -> tuple[str, ...]:
        """Names of the brokers that have readable queues of the topic, sorted."""
        return tuple(queues.broker for queues in self.queues if queues.readable)

    @cached_property
    def writable(self) -> tuple[tuple[str, int], ...]:
        """(broker name, queue id) of every queue that takes messages, sorted.

        Where the topic has a fixed order (`orderTopicConf`, "broker:queues;…") it says which these are.
        """
        masters = {broker["brokerName"] for broker in self.data["brokerDatas"] if MASTER_ID in broker["brokerAddrs"]}
        counts = {queues.broker: queues.writable for queues in self.queues}
        if order := self.data.get("orderTopicConf"):
            pairs = (item.partition(":") for item in str(order).split(";") if item)
            counts = {name: int(count) for name, _, count in pairs if name in masters and count.isdecimal()}
        return tuple((broker, number) for broker in sorted(counts) for number in range(counts[broker]))


@dataclass(frozen=True, slots=True)
class BrokerQueues:
    """A topic's queues at one broker: `permission` bits as `messages.Permission`, numbers of queues to read and write.

    master: whether the broker has one now.
    """

    broker: str
    master: bool
    permission: int
    read: int
    write: int

    @property
    def count(self) -> int:
        """How many queues there are to see."""
        return max(self.read, self.write)

    @property
    def readable(self) -> int:
        """How many queues may be read: the ids from 0 on."""
        return self.read if self.permission & _READ else 0

    @property
    def writable(self) -> int:
        """How many queues take messages now: the ids from 0 on."""
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


def joined(routes: Sequence[TopicRoute]) -> TopicRoute:
    """One route out of several name servers' views of a topic; where they contradict, the earlier view wins."""
    first = routes[0]
    if all(set(route.brokers) <= set(first.brokers) for route in routes):
        return first
    data = dict(first.data)
    for key in ("queueDatas", "brokerDatas"):
        found = {item["brokerName"]: item for route in reversed(routes) for item in route.data[key]}
        data[key] = [found[name] for name in sorted(found)]
    return TopicRoute(first.topic, data, tuple(sorted({name for route in routes for name in route.brokers})))


def encode(route: TopicRoute, address: Callable[[str], str], standard_json: bool) -> bytes:
    """The answer for a client: the route with each broker's addresses replaced by `address(broker name)`."""
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
        """The master's address, or nothing."""
        return [] if self.master is None else [self.master]

    @cached_property
    def slaves(self) -> list[str]:
        """The slaves' addresses; the one with the lowest id stands in for a master, so it comes first."""
        return [address for number, address in sorted(self.addresses.items()) if number != MASTER_ID]

    @cached_property
    def all(self) -> list[str]:
        """All addresses, the master's first."""
        return [*self.masters, *self.slaves]


def parse_cluster(body: bytes) -> dict[str, Replicas]:
    """Parse a ClusterInfo body: all brokers by name. Raises BodyError."""
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


def merge(views: Iterable[dict[str, Replicas]]) -> dict[str, Replicas]:
    """One table out of several name servers' views; where they contradict, the earlier view wins.

    A name server that has lost a broker (a partition, a restart) must not hide it from us: a broker
    that any of them knows is worth a try, and a dead one refuses the connection at once.
    """
    merged: dict[str, Replicas] = {}
    for view in views:
        for name, replicas in view.items():
            known = merged.get(name)
            merged[name] = replicas if known is None else _united(known, replicas)
    return merged


def _united(first: Replicas, second: Replicas) -> Replicas:
    # An address must not appear under two ids: after a failover a stale view has the new master as slave.
    more = {n: a for n, a in second.addresses.items() if a not in first.addresses.values()}
    return Replicas(first.name, first.cluster, {**more, **first.addresses}, first.acting_master or second.acting_master)
