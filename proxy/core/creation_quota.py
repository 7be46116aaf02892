"""Quota of topics and consumer groups that clients' requests create at the brokers of a cluster.

Brokers create a topic with the first message to it, and a group with its first consumer, if they are configured so.
The first use of each name takes a creation from the client's budget. Without one left, a broker or name server is asked
first whether the name exists, so that clients can always use existing ones.
"""

from collections.abc import Iterable
from time import monotonic

from proxy.core.backend import Backend
from proxy.core.channel import Channel
from proxy.core.context import Context
from proxy.core.creation_budgets import CreationBudgets
from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import GroupNotExist, RemotingError, ServiceUnavailable, TopicNotExist
from remoting.request_kinds import Created
from remoting.requests import REQUESTS

# Names of each kind that are remembered.
_MAX_NAMES = 20_000
# Timeout of the question whether a group exists, in seconds.
_TIMEOUT = 3.0
# Requests with which brokers create their topic or consumer group.
_CREATING: dict[int, Created] = {code: spec.creates for code, spec in REQUESTS.items() if spec.creates is not None}


def _name_field(code: int, kind: Created) -> str:
    """Return the field of a request with the name of the new topic or group."""
    spec = REQUESTS[code]
    field = spec.topic if kind is Created.TOPIC else spec.group
    assert field is not None
    return field


class CreationQuota:
    """Admits the names of topics and groups. per_day: creations of all clients together within a day."""

    def __init__(self, backend: Backend, per_client: int, per_address: int, per_day: int) -> None:
        self._backend = backend
        self._budgets = CreationBudgets(per_client, per_address, per_day)
        self.counts = self._budgets.counts
        # Names that have been used or found.
        self._names: dict[Created, set[str]] = {kind: set() for kind in Created}
        # For each code: the kind, the field with the name, and the known names.
        self._known = {
            int(code): (kind, _name_field(code, kind), self._names[kind]) for code, kind in _CREATING.items()
        }

    def admits(self, context: Context) -> bool:
        """Return whether a request may be forwarded; otherwise `check` has to be awaited before."""
        known = self._known.get(context.code)
        if known is None:
            return True
        kind, field, names = known
        name = context.fields.get(field)
        return name in names or not name or self._admit(context.channel, kind, name)

    async def check(self, context: Context) -> None:
        """Look for the topic or group of a request that is not admitted. Raises TopicNotExist, GroupNotExist."""
        kind, field, _ = self._known[context.code]
        await self._check(context.channel, kind, context.fields[field])

    async def check_groups(self, channel: Channel, groups: Iterable[str]) -> None:
        """Raise GroupNotExist if one of a consumer's groups is neither known nor admitted, nor found."""
        for group in groups:
            if group not in self._names[Created.GROUP] and not self._admit(channel, Created.GROUP, group):
                await self._check(channel, Created.GROUP, group)

    def _admit(self, channel: Channel, kind: Created, name: str) -> bool:
        """Return whether a name is known to exist, or the client has a creation left."""
        exists = kind is Created.TOPIC and self._backend.cached_route(name) is not None
        if not exists and not self._budgets.take(channel, int(monotonic() * 1000)):
            return False
        self._remember(kind, name)
        return True

    def _remember(self, kind: Created, name: str) -> None:
        names = self._names[kind]
        if len(names) >= _MAX_NAMES:
            names.clear()
        names.add(name)

    async def _check(self, channel: Channel, kind: Created, name: str) -> None:
        if await (self._topic_exists(name) if kind is Created.TOPIC else self._group_exists(name)):
            self._remember(kind, name)
            return
        self._budgets.refuse(channel, kind, name, int(monotonic() * 1000))
        text = (
            f"the {kind} {name} is not created: too many have been created lately; create it with a tool, or try later"
        )
        raise TopicNotExist(text) if kind is Created.TOPIC else GroupNotExist(text)

    async def _topic_exists(self, name: str) -> bool:
        try:
            await self._backend.route(name)
        except TopicNotExist:
            return False
        return True

    async def _group_exists(self, name: str) -> bool:
        """Ask the brokers in turn until one answers; all have the same groups."""
        command = commands.request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": name})
        spec = REQUESTS[RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG]
        failure: RemotingError = ServiceUnavailable("no broker is available")
        for broker in await self._backend.brokers():
            try:
                reply = await self._backend.request(broker, spec, command.copy(), _TIMEOUT, None)
            except RemotingError as error:
                failure = error
                continue
            return reply.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        raise failure
