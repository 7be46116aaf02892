"""Topics and consumer groups of an import: new ones are created, existing ones change only with --overwrite."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from proxy.tools.cli import catalogue, topics
from proxy.tools.cli.archive import GroupLine, TopicLine
from proxy.tools.cli.catalogue import Configurations
from proxy.tools.cli.client import Client
from proxy.tools.cli.output import warn
from remoting.codes import RequestCode
from remoting.topic_group_config import NEW_GROUP, changed_group

_Configuration = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Difference:
    """A difference between an existing topic or group and the file. kept: --overwrite does not change it either."""

    text: str
    kept: bool = False


_MISSING = _Difference("does not exist, only at other brokers")


class Definitions:
    """Topics and groups at the target. overwrite: change existing ones to match the file."""

    def __init__(self, client: Client, overwrite: bool) -> None:
        self._client = client
        self._overwrite = overwrite
        # Configurations before the import.
        self._topics: dict[str, Configurations] | None = None
        self._groups: dict[str, Configurations] | None = None

    async def put_topic(self, line: TopicLine) -> bool:
        """Create the topic, or change it with --overwrite; return whether anything was done."""
        if self._topics is None:
            self._topics = await catalogue.topics(self._client, system=True)
        existing = self._topics.get(line.topic, {})
        due = [
            broker
            for broker in await self._client.brokers()
            if self._is_due(f"topic {line.topic}", broker, existing, _topic_differences(line, existing.get(broker)))
        ]
        for broker in due:
            current = existing.get(broker, {})
            written = max(line.write_queues, int(current.get("writeQueueNums", 0)))
            read = max(line.read_queues, int(current.get("readQueueNums", 0)))
            await topics.create(self._client, line.topic, line.type, written, read, line.permission, brokers=(broker,))
        return bool(due)

    async def put_group(self, line: GroupLine) -> bool:
        """Create the group, or change it with --overwrite; return whether anything was done."""
        if self._groups is None:
            self._groups = await catalogue.groups(self._client, system=True)
        existing = self._groups.get(line.group, {})
        item = f"consumer group {line.group}"
        due = [
            broker
            for broker in await self._client.brokers()
            if self._is_due(item, broker, existing, _group_differences(line, existing.get(broker)))
        ]
        # As a change: brokers expect each attribute's name with a sign.
        attributes = {f"+{name}": value for name, value in _attributes(line.configuration).items()}
        changes = {**line.configuration, "groupName": line.group, "attributes": attributes}
        for broker in due:
            body = orjson.dumps(changed_group(existing.get(broker, {}), changes))
            await self._client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {"bname": broker}, body)
        return bool(due)

    def _is_due(self, item: str, broker: str, existing: Configurations, differences: Iterator[_Difference]) -> bool:
        """Return whether to write the item at a broker; warn of each difference from an existing one."""
        if not existing:
            return True
        found = list(differences)
        for difference in found:
            would = "it is changed" if self._overwrite else "--overwrite would change it"
            warn(f"{item} at {broker} {difference.text}; {'queues are never removed' if difference.kept else would}")
        return self._overwrite and not all(difference.kept for difference in found)


def _topic_differences(line: TopicLine, current: _Configuration | None) -> Iterator[_Difference]:
    if current is None:
        yield _MISSING
        return
    for name, key, wanted in (
        ("read", "readQueueNums", line.read_queues),
        ("write", "writeQueueNums", line.write_queues),
    ):
        queues = int(current[key])
        if queues != wanted:
            yield _Difference(f"has {queues} {name} queues, the file {wanted}", kept=queues > wanted)
    kind = catalogue.message_type({"": dict(current)})
    if kind != line.type:
        yield _Difference(f"has type {kind}, the file {line.type}")
    if int(current["perm"]) != line.permission:
        yield _Difference(f"has permission {current['perm']}, the file {line.permission}")


def _group_differences(line: GroupLine, current: _Configuration | None) -> Iterator[_Difference]:
    """Yield the differences in the properties that the file has: brokers of other versions have others."""
    if current is None:
        yield _MISSING
        return
    wanted = {key: value for key, value in line.configuration.items() if key not in ("groupName", "attributes")}
    yield from _value_differences("", wanted, {**NEW_GROUP, **current})
    yield from _value_differences("attribute ", _attributes(line.configuration), _attributes(current))


def _value_differences(prefix: str, wanted: _Configuration, current: _Configuration) -> Iterator[_Difference]:
    for name, value in wanted.items():
        present = current.get(name)
        # A broker may leave out an empty value.
        if (present or None) != (value or None):
            yield _Difference(f"has {prefix}{name} {_text(present)}, the file {_text(value)}")


def _attributes(configuration: _Configuration) -> dict[str, Any]:
    found = configuration.get("attributes") or {}
    return {name.removeprefix("+"): value for name, value in found.items()}


def _text(value: object) -> str:
    return orjson.dumps(value).decode()
