"""How the workers' answers become one: values only, no I/O.

A join takes what each worker answered, in the order of their numbers, and the request's query. A connection's number is
its worker's and its own, as in `1:17`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from proxy.operations.groups import skew
from proxy.operations.paging import DEFAULT_LIMIT, joined

Data = dict[str, Any]
_INTEGER = TypeAdapter(int)
# What becomes of the values of one field.
Rule = Callable[[list[Any]], Any]


class Told(NamedTuple):
    """One worker's answer: its JSON object, and what it told aside."""

    worker: int
    data: Data
    aside: Mapping[str, Any]


Join = Callable[[Sequence[Told], Mapping[str, str]], Data]

# Fields.


def first(values: list[Any]) -> Any:
    """The first that there is."""
    return next((value for value in values if value is not None), None)


def total(values: list[Any]) -> Any:
    """All of them together."""
    return sum(value for value in values if value is not None)


def largest(values: list[Any]) -> Any:
    """The largest that there is."""
    return max((value for value in values if value is not None), default=None)


def least(values: list[Any]) -> Any:
    """The least that there is."""
    return min((value for value in values if value is not None), default=None)


def either(values: list[Any]) -> Any:
    """Whether it is so for one; None where none can say."""
    known = [value for value in values if value is not None]
    return any(known) if known else None


def union(values: list[Any]) -> Any:
    """What is in any of the lists, each once."""
    return sorted({item for value in values for item in value})


# Trouble first: a worker that cannot reach what another can is worth a look.
_STATES = ("unreachable", "connected", "in-process", "idle")


def state(values: list[Any]) -> Any:
    """Of states of connections."""
    return min(values, key=_STATES.index)


def earliest(values: list[Any]) -> Any:
    """Of times as text."""
    return min(values, key=datetime.fromisoformat)


def merged(items: Sequence[Data], rules: Mapping[str, Rule]) -> Data:
    """One object from several: each field by its rule, and without one as the first that there is."""
    return {name: rules.get(name, first)([item.get(name) for item in items]) for name in items[0]}


def _average(items: Sequence[Data], weight: str) -> float | None:
    known = [(item["average_milliseconds"], item[weight]) for item in items if item["average_milliseconds"] is not None]
    answers = sum(count for _, count in known)
    return round(sum(average * count for average, count in known) / answers, 3) if answers else None


# Objects.


def objects(rules: Mapping[str, Rule], apart: Callable[[Data], object] | None = None) -> Join:
    """One object. `workers` tells each one's where they differ in `apart`."""

    def join(told: Sequence[Told], _: Mapping[str, str]) -> Data:
        return _told_apart([(each.worker, each.data) for each in told], rules, apart)

    return join


def _told_apart(
    items: Sequence[tuple[int, Data]], rules: Mapping[str, Rule], apart: Callable[[Data], object] | None
) -> Data:
    found = merged([item for _, item in items], rules)
    if apart is not None and any(apart(item) != apart(items[0][1]) for _, item in items):
        found["workers"] = [{"worker": worker, **item} for worker, item in items]
    return found


def version(told: Sequence[Told], _: Mapping[str, str]) -> Data:
    """What runs, and since when in which worker."""
    found = merged([each.data for each in told], {"started": earliest, "uptime": largest, "listeners": union})
    names = ("started", "uptime")
    found["workers"] = [{"worker": each.worker, **{name: each.data[name] for name in names}} for each in told]
    return found


# Lists of things that workers know of by the same key.


def keyed(
    key: Sequence[str],
    rules: Mapping[str, Rule],
    apart: Callable[[Data], object] | None = None,
    field: str = "items",
) -> Join:
    """A list with one item for each key, in the order in which keys come."""

    def join(told: Sequence[Told], _: Mapping[str, str]) -> Data:
        found: dict[tuple[Any, ...], list[tuple[int, Data]]] = {}
        for each in told:
            for item in each.data[field]:
                found.setdefault(tuple(item[name] for name in key), []).append((each.worker, item))
        return {**told[0].data, field: [_told_apart(items, rules, apart) for items in found.values()]}

    return join


def sorted_by(place: Callable[[Data], Any], join: Join) -> Join:
    """The same list in another order."""

    def in_order(told: Sequence[Told], query: Mapping[str, str]) -> Data:
        found = join(told, query)
        return {**found, "items": sorted(found["items"], key=place)}

    return in_order


_ADDRESS: dict[str, Rule] = {
    "state": state,
    "connections": total,
    "pending": total,
    "bytes_in": total,
    "bytes_out": total,
    "congested": any,
}


def _addresses(values: list[Any]) -> Any:
    found = alike((address for value in values for address in value), "id", "address")
    return sorted((merged(same, _ADDRESS) for same in found), key=lambda address: (address["id"], address["address"]))


_BROKER: dict[str, Rule] = {"healthy": all, "addresses": _addresses, "answers": total, "longest_milliseconds": largest}


def brokers(told: Sequence[Told], _: Mapping[str, str]) -> Data:
    """Brokers, by name."""
    return {"items": joined_brokers([item for each in told for item in each.data["items"]])}


def joined_brokers(items: Iterable[Data]) -> list[Data]:
    """One for each name."""
    return [
        {**merged(same, _BROKER), "average_milliseconds": _average(same, "answers")} for same in alike(items, "name")
    ]


def requests(told: Sequence[Told], _: Mapping[str, str]) -> Data:
    """The request table: the codes in their order, then what else there is."""
    items = [item for each in told for item in each.data["items"]]
    found = [
        {**merged(same, {"answered": total, "failed": total}), "average_milliseconds": _average(same, "answered")}
        for same in alike(items, "protocol", "name", "code")
    ]
    found.sort(key=lambda item: (0, item["code"]) if item["code"] is not None else (1, item["protocol"], item["name"]))
    return {"items": found}


def alike(items: Iterable[Data], *key: str) -> list[list[Data]]:
    """Those with the same values under `key` together, in the order in which these come."""
    found: dict[tuple[Any, ...], list[Data]] = {}
    for item in items:
        found.setdefault(tuple(item[name] for name in key), []).append(item)
    return list(found.values())


# Lists of things that one worker has.


def latest(field: str) -> Join:
    """The latest of all, each with its worker."""

    def join(told: Sequence[Told], query: Mapping[str, str]) -> Data:
        items = [placed(each.worker, item) for each in told for item in each.data["items"]]
        items.sort(key=lambda item: datetime.fromisoformat(item[field]), reverse=True)
        return {"items": items[: limit(query)]}

    return join


def limit(query: Mapping[str, str]) -> int:
    """Return the page limit, as the routes read it."""
    return _INTEGER.validate_python(query.get("limit", DEFAULT_LIMIT))


def placed(worker: int, item: Data) -> Data:
    """A thing with the worker that has it."""
    found = {"worker": worker, **item}
    if "number" in item:
        found["number"] = joined(worker, item["number"])
    return found


def own(told: Sequence[Told], _: Mapping[str, str]) -> Data:
    """A thing that one worker has."""
    (each,) = told
    return placed(each.worker, each.data)


# Clients and groups.

_CLIENT: dict[str, Rule] = {
    "protocols": union,
    "addresses": union,
    "connections": lambda values: [number for value in values for number in value],
    "producer_groups": union,
    "consumer_groups": union,
    "telemetry": either,
    "heartbeat": least,
}


def client(told: Sequence[Told], _: Mapping[str, str]) -> Data:
    """A client, whose connections may be at several workers."""
    items = [
        {**each.data, "connections": [joined(each.worker, number) for number in each.data["connections"]]}
        for each in told
    ]
    return merged(items, _CLIENT)


def group_summary(told: Sequence[Told], _: Mapping[str, str]) -> Data:
    """A group in short: `aside` has its members (`proxy.operations.groups.known`)."""
    found = merged([each.data for each in told], {"topics": union})
    members = [each.aside for each in told]
    found["members"] = len({client_id for known in members for client_id in known["ids"]})
    found["local"] = len({client_id for known in members for client_id in known["local"]})
    if "skewed" in found:
        found["skewed"] = bool(_skew(members))
    return found


def group(told: Sequence[Told], _: Mapping[str, str]) -> Data:
    """A group: who is connected here; then who is elsewhere, which each worker says of the others' members as well."""
    found = dict(told[0].data)
    members = [member for each in told for member in each.data["members"]]
    here = sorted(
        (member for member in members if member["protocol"] is not None), key=lambda member: str(member["client_id"])
    )
    known = {member["client_id"] for member in here}
    elsewhere = []
    # What is known of somebody elsewhere by subscriptions is more than what is known by name.
    for member in sorted(members, key=lambda member: member.get("subscriptions") is None):
        if member["client_id"] not in known:
            known.add(member["client_id"])
            elsewhere.append(member)
    found["members"] = [*here, *elsewhere]
    if "skew" in found:
        found["skew"] = _skew([each.aside.get("members", ({},))[0] for each in told])
    return found


def owners(told: Sequence[Told], _: Mapping[str, str]) -> Data:
    """Who has which queue: a member that one worker could not ask, its own could."""
    rows = [row for each in told for row in each.data["queues"]]
    queues = [merged(same, {"client_ids": union}) for same in alike(rows, "topic", "broker", "queue")]
    answered = {client_id for each in told for client_id in each.aside["answered"]}
    unanswered = {client_id for each in told for client_id in each.data["unanswered"]}
    return {
        **told[0].data,
        "queues": sorted(queues, key=lambda row: (row["topic"], row["broker"], row["queue"])),
        "unanswered": sorted(unanswered - answered),
    }


def _skew(members: Iterable[Mapping[str, Any]]) -> list[Data]:
    wanted: dict[str, dict[str, tuple[str, str]]] = {}
    for known in members:
        for client_id, topics in known.get("wanted", {}).items():
            mine = wanted.setdefault(client_id, {})
            mine.update({topic: (expression, kind) for topic, (expression, kind) in topics.items()})
    return [item.model_dump(mode="json") for item in skew(wanted)]
