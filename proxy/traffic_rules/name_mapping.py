"""Names: what a connection's topics and groups are called by its clients, and by the brokers. Pure.

A namespace puts `<namespace>%` before a name, and behind the prefix of a retry or dead letter topic, as RocketMQ's
own clients do (NamespaceUtil). Other than there, a name that begins so already gets it once more: so every name has
one counterpart, and no client can name what is outside of its namespace.
"""

from dataclasses import dataclass
from functools import cached_property

from proxy.core.client_registry import INNER_PRODUCER
from remoting.errors import NotPermitted
from remoting.names import DLQ_PREFIX, RETRY_PREFIX

_PREFIXES = (RETRY_PREFIX, DLQ_PREFIX)
# Between group and topic in the name of a POP retry topic, new and old.
_NEW, _OLD = "+", "_"
# Names that mean the same to everybody: the model of new topics, traces, and where replies go (of every cluster).
_SHARED_TOPICS = frozenset({"TBW102", "RMQ_SYS_TRACE_TOPIC"})
_SHARED_SUFFIX = "_REPLY_TOPIC"
_SHARED_GROUPS = frozenset({INNER_PRODUCER})


class Foreign(Exception):
    """A name that brokers know, but that this connection's clients have no name for."""


def is_shared(topic: str) -> bool:
    """Whether a topic is everybody's: it may be sent to, by its own name, from every namespace."""
    return topic in _SHARED_TOPICS or (topic.endswith(_SHARED_SUFFIX) and not topic.startswith("%"))


@dataclass(frozen=True)
class Names:
    """The names of some connections. namespace: "" for none; aliases: (client's, brokers') of topics."""

    namespace: str
    aliases: tuple[tuple[str, str], ...] = ()

    @cached_property
    def prefix(self) -> str:
        return f"{self.namespace}%" if self.namespace else ""

    @cached_property
    def _real(self) -> dict[str, str]:
        return dict(self.aliases)

    @cached_property
    def _shown(self) -> dict[str, str]:
        return {real: topic for topic, real in self.aliases}

    # To the brokers.

    def topic(self, name: str, group: str | None = None) -> str:
        """A topic's name at the brokers. group: of the request, by its client's name. Raises NotPermitted."""
        if not name:
            return name
        for prefix in _PREFIXES:
            if name.startswith(prefix):
                owner, separator, topic = _split(name.removeprefix(prefix), group)
                return f"{prefix}{self.group(owner)}{separator}{topic and self.topic(topic)}"
        if self.namespace and is_shared(name):
            return name
        real = self._real.get(name)
        if real is None:
            if name in self._shown:
                raise NotPermitted(f"topic {name} is {self._shown[name]} here")
            real = name
        return self.prefix + real

    def group(self, name: str) -> str:
        """A group's name at the brokers."""
        return name if not name or name in _SHARED_GROUPS else self.prefix + name

    # To the client.

    def shown_topic(self, name: str, group: str | None = None) -> str:
        """A topic's name for the client. group: of the request, by the brokers' name. Raises Foreign."""
        if not name:
            return name
        for prefix in _PREFIXES:
            if name.startswith(prefix):
                owner, separator, topic = _split(name.removeprefix(prefix), group)
                return f"{prefix}{self.shown_group(owner)}{separator}{topic and self.shown_topic(topic)}"
        if self.namespace and is_shared(name):
            return name
        name = self._without(name)
        shown = self._shown.get(name)
        if shown is None:
            if name in self._real:
                raise Foreign(name)
            shown = name
        return shown

    def shown_group(self, name: str) -> str:
        """A group's name for the client. Raises Foreign."""
        return name if not name or name in _SHARED_GROUPS else self._without(name)

    def shown_text(self, text: str) -> str:
        """A remark or message for the client, without the namespace."""
        return text.replace(self.prefix, "") if self.prefix else text

    def _without(self, name: str) -> str:
        if not name.startswith(self.prefix):
            raise Foreign(name)
        return name.removeprefix(self.prefix)


def _split(name: str, group: str | None) -> tuple[str, str, str]:
    """Group, separator and topic of a POP retry topic; the whole is the group of any other."""
    if group:
        for separator in (_NEW, _OLD):
            topic = name.removeprefix(group + separator)
            if topic != name:
                return group, separator, topic
    owner, separator, topic = name.partition(_NEW)
    return owner, separator, topic
