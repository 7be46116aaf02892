"""Mapping between the clients' and the brokers' names of topics and groups. Pure.

A namespace prepends `<namespace>%` to a name or, in a retry or dead letter topic, to the names after its prefix, as
RocketMQ's own clients do (NamespaceUtil). Unlike there, a name that already begins with the namespace is prefixed
again: the mapping is one-to-one, and clients cannot address names outside their namespace.
"""

import re
from dataclasses import dataclass
from functools import cached_property

from grpc_gateway.name_mapping import UnmappedName
from proxy.core.client_registry import INNER_PRODUCER
from remoting.errors import NotPermitted
from remoting.names import DEFAULT_TOPIC, DLQ_PREFIX, OLD_POP_SEPARATOR, POP_SEPARATOR, RETRY_PREFIX, TRACE_TOPIC

_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX)
# Names that no namespace changes: the model of new topics, the trace topic and each cluster's reply topic.
_SHARED_TOPICS = frozenset({DEFAULT_TOPIC, TRACE_TOPIC})
_SHARED_SUFFIX = "_REPLY_TOPIC"
_SHARED_GROUPS = frozenset({INNER_PRODUCER})
# Characters of topics (RocketMQ's TopicValidator), as a set of a regular expression.
_NAME_CHARACTERS = r"%|a-zA-Z0-9_\-"


class ForeignName(UnmappedName):
    """A name on the brokers that has no counterpart for the clients of the connection."""


def is_shared(topic: str) -> bool:
    """Return whether a topic keeps its name in every namespace. Clients in a namespace may only send to it."""
    return topic in _SHARED_TOPICS or (topic.endswith(_SHARED_SUFFIX) and not topic.startswith("%"))


@dataclass(frozen=True)
class NameMapping:
    """The name mapping of a connection. namespace: "" for none; aliases: (client's name, brokers' name) of topics."""

    namespace: str
    aliases: tuple[tuple[str, str], ...] = ()

    @cached_property
    def prefix(self) -> str:
        """Prefix of the names on the brokers; "" without a namespace."""
        return f"{self.namespace}%" if self.namespace else ""

    @cached_property
    def _broker_names(self) -> dict[str, str]:
        return dict(self.aliases)

    @cached_property
    def _client_names(self) -> dict[str, str]:
        return {real: topic for topic, real in self.aliases}

    # To the brokers.

    def broker_topic(self, name: str, group: str | None = None) -> str:
        """Return a topic's name on the brokers.

        `group` is the client's name of the request's group, which splits a POP retry topic. Raises NotPermitted if the
        clients know the topic by an alias.
        """
        if not name:
            return name
        for prefix in _PREFIXES:
            if name.startswith(prefix):
                owner, separator, topic = _split(name.removeprefix(prefix), group)
                return f"{prefix}{self.broker_group(owner)}{separator}{topic and self.broker_topic(topic)}"
        if self.namespace and is_shared(name):
            return name
        real = self._broker_names.get(name)
        if real is None:
            if name in self._client_names:
                # Without the brokers' name, which `client_text` would replace.
                raise NotPermitted(f"the topic is named {self._client_names[name]} for this client")
            real = name
        return self.prefix + real

    def broker_group(self, name: str) -> str:
        """Return a group's name on the brokers."""
        return name if not name or name in _SHARED_GROUPS else self.prefix + name

    # To the client.

    def client_topic(self, name: str, group: str | None = None) -> str:
        """Return a topic's name for the client. `group` is the brokers' name of the group. Raises ForeignName."""
        if not name:
            return name
        for prefix in _PREFIXES:
            if name.startswith(prefix):
                owner, separator, topic = _split(name.removeprefix(prefix), group)
                return f"{prefix}{self.client_group(owner)}{separator}{topic and self.client_topic(topic)}"
        if self.namespace and is_shared(name):
            return name
        name = self._without_prefix(name)
        topic = self._client_names.get(name, "")
        if not topic:
            if name in self._broker_names:
                raise ForeignName(name)
            topic = name
        return topic

    def owns(self, name: str, group: str | None = None) -> bool:
        """Return whether a topic on the brokers belongs to these clients alone. `group` is as in `client_topic`."""
        if not name or (self.namespace and is_shared(name)):
            return False
        try:
            self.client_topic(name, group)
        except ForeignName:
            return False
        return True

    def client_group(self, name: str) -> str:
        """Return a group's name for the client. Raises ForeignName."""
        return name if not name or name in _SHARED_GROUPS else self._without_prefix(name)

    def client_text(self, text: str) -> str:
        """Return a remark or error text without the namespace, and with the aliases of topics."""
        if self.prefix:
            text = text.replace(self.prefix, "")
        return self._real_names.sub(self._alias, text) if self.aliases else text

    @cached_property
    def _real_names(self) -> re.Pattern[str]:
        """The brokers' names of topics with aliases, as whole words of a text that are no names of groups."""
        names = "|".join(map(re.escape, self._client_names))
        return re.compile(rf"(?<![{_NAME_CHARACTERS}])(?<!group )(?:{names})(?![{_NAME_CHARACTERS}])")

    def _alias(self, name: re.Match[str]) -> str:
        return self._client_names[name[0]]

    def _without_prefix(self, name: str) -> str:
        if not name.startswith(self.prefix):
            raise ForeignName(name)
        return name.removeprefix(self.prefix)


def _split(name: str, group: str | None) -> tuple[str, str, str]:
    """Return group, separator and topic of a POP retry topic; of other retry topics, the group and empty strings."""
    if group:
        for separator in (POP_SEPARATOR, OLD_POP_SEPARATOR):
            topic = name.removeprefix(group + separator)
            if topic != name:
                return group, separator, topic
    owner, separator, topic = name.partition(POP_SEPARATOR)
    return owner, separator, topic
