"""The rules file: a TOML document, checked whole. Pure: nothing of the running proxy is behind it.

Rules are an ordered list. What each kind does to a request is in `judge`, what it does to names in `names`.
"""

import re
import tomllib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from remoting.codes import RequestCode, ResponseCode
from remoting.requests import REQUESTS, Action, Direction

Network = IPv4Network | IPv6Network

# Requests that carry messages to brokers, and those whose answers carry them to consumers.
SENDS = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)
RECEIVES = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.POP_LITE_MESSAGE,
        RequestCode.PEEK_MESSAGE,
    }
)
# These bring messages too: who may not receive must not look them up either.
_LOOKS_UP = frozenset({RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID})
# A client that may not say that it is there would be of no group at all: only rules that name these mean them.
_PRESENCE = frozenset({RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT, RequestCode.LITE_SUBSCRIPTION_CTL})
_MIRRORED = SENDS - {RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}
_DATA = _LOOKS_UP | frozenset(
    spec.code
    for spec in REQUESTS.values()
    if spec.action in (Action.PUB, Action.SUB) and spec.direction is not Direction.BROKER and spec.code not in _PRESENCE
)
_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
# As brokers have them (RocketMQ's TopicValidator).
_TOPIC = r"^[%|a-zA-Z0-9_-]{1,127}$"
# Together with a name it has to fit a topic.
_NAMESPACE = r"^[A-Za-z0-9_-]{1,48}$"
_VERSION = r"^\d+(\.\d+){0,2}$"
# The binary header has two bytes for a response code: of a larger one others would see a part, perhaps SUCCESS.
_LARGEST_CODE = 2**15 - 1


class RulesError(Exception):
    """The rules file is wrong; the message names each rule and key and what is the matter with it."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _request_code(value: object) -> object:
    """A request code by its name."""
    if not isinstance(value, str):
        raise ValueError("needs the name of a request code, as SEND_MESSAGE_V2")
    code = RequestCode.__members__.get(value)
    if code is None or code not in REQUESTS or REQUESTS[code].direction is Direction.BROKER:
        raise ValueError(f"clients send no request {value!r}")
    return code


def _response_code(value: object) -> object:
    """A response code by its name or number."""
    if isinstance(value, str):
        if value not in ResponseCode.__members__:
            raise ValueError(f"there is no response code {value!r}")
        return int(ResponseCode[value])
    return value


Globs = tuple[Annotated[str, Field(min_length=1)], ...]
Percent = Annotated[float, Field(gt=0, le=100)]


class Match(_Table):
    """Which requests a rule is about. Every key that is given must fit; one of its values is enough."""

    protocols: tuple[Literal["remoting", "grpc"], ...] = Field((), description="how the client speaks")
    listeners: Globs = Field((), description="names of listeners, globs")
    server_names: Globs = Field((), description="names that TLS clients asked for (SNI), globs")
    subjects: Globs = Field((), description="distinguished names of client certificates (RFC 4514), globs")
    networks: tuple[Network, ...] = Field((), description="the client's address, as 10.0.0.0/8")
    clients: Globs = Field((), description="client ids, globs; of remoting clients known after their first heartbeat")
    languages: Globs = Field((), description="languages of clients, as JAVA, in any case, globs")
    version_from: Annotated[str, Field(pattern=_VERSION)] | None = Field(None, description="least client version")
    version_below: Annotated[str, Field(pattern=_VERSION)] | None = Field(
        None, description="client versions from this one on do not match"
    )
    topics: Globs = Field((), description="topics by the names that brokers know, globs")
    groups: Globs = Field((), description="groups by the names that brokers know; a gRPC producer's is its topic")
    actions: tuple[Literal["Pub", "Sub", "Get", "Create", "Update", "Delete", "Any"], ...] = Field(
        (), description="what the request table says that the request does"
    )
    requests: tuple[Annotated[RequestCode, BeforeValidator(_request_code)], ...] = Field(
        (), description="request codes by name; those behind a gRPC client's calls too"
    )

    # What is known as soon as a connection is there.
    CONNECTION: ClassVar = frozenset({"protocols", "listeners", "server_names", "subjects", "networks"})

    def given(self) -> set[str]:
        """The keys that are given."""
        return {name for name in type(self).model_fields if getattr(self, name)}

    def codes(self, default: frozenset[RequestCode]) -> frozenset[RequestCode]:
        """The request codes that are meant: those named, those of the actions named, else the rule's own."""
        if self.requests:
            return frozenset(self.requests)
        if not self.actions:
            return default
        return frozenset(
            spec.code
            for spec in REQUESTS.values()
            if spec.action.value in self.actions
            and spec.direction is not Direction.BROKER
            and spec.code not in _PRESENCE
        )


class _Rule(_Table):
    name: str = Field(pattern=_NAME, description="as metrics, logs and refusals say it")
    dry_run: bool = Field(False, description="count what the rule would do, and do not do it")
    match: Match = Field(Match(), description="what the rule is about; nothing given: everything")

    # What a rule of this kind is about where its match names neither actions nor requests; and the most it may name.
    DEFAULT: ClassVar[frozenset[RequestCode]] = frozenset()
    POSSIBLE: ClassVar[frozenset[RequestCode] | None] = None

    @property
    def codes(self) -> frozenset[RequestCode]:
        """The request codes that the rule is about."""
        codes = self.match.codes(self.DEFAULT)
        return codes if self.POSSIBLE is None else codes & self.POSSIBLE

    @model_validator(mode="after")
    def _possible(self) -> "_Rule":
        if self.POSSIBLE is not None and not self.codes:
            raise ValueError(
                f"match.actions, match.requests: a rule of this kind is about {_names(self.POSSIBLE)}, "
                "and none of them is matched"
            )
        return self


def _names(codes: Iterable[RequestCode]) -> str:
    return ", ".join(sorted(code.name for code in codes))


class _ConnectionRule(_Rule):
    """A rule that is applied when a connection opens."""

    @model_validator(mode="after")
    def _of_connections(self) -> "_ConnectionRule":
        unknown = self.match.given() - Match.CONNECTION
        if unknown:
            raise ValueError(
                f"match.{min(unknown)}: this is decided when a connection opens, by "
                f"{', '.join(sorted(Match.CONNECTION))} alone"
            )
        return self


class Allow(_Rule):
    """What matches is not denied by any rule further down."""

    kind: Literal["allow"]
    DEFAULT = _DATA


class Deny(_Rule):
    """What matches is refused: NO_PERMISSION, FORBIDDEN."""

    kind: Literal["deny"]
    DEFAULT = _DATA


class Limit(_Rule):
    """At most so much per second: a send beyond it is refused, a receive waits."""

    kind: Literal["limit"]
    messages: float | None = Field(None, gt=0, description="messages per second")
    bytes: float | None = Field(None, gt=0, description="bytes of bodies per second")
    requests: float | None = Field(None, gt=0, description="requests per second")
    burst: float = Field(1.0, gt=0, le=3600, description="seconds' worth that may come at once")
    per: tuple[Literal["client", "group", "topic", "address", "connection"], ...] = Field(
        (), description="what has a count of its own; default: all share one"
    )
    DEFAULT = SENDS | RECEIVES

    @property
    def codes(self) -> frozenset[RequestCode]:
        """Of the actions Pub and Sub, sends and receives: who may not settle what it received would get it again."""
        codes = super().codes
        if self.match.requests:
            return codes
        return frozenset(
            code for code in codes if code in self.DEFAULT or REQUESTS[code].action not in (Action.PUB, Action.SUB)
        )

    @model_validator(mode="after")
    def _measurable(self) -> "Limit":
        if self.messages is None and self.bytes is None and self.requests is None:
            raise ValueError("messages, bytes, requests: one of them has to be given")
        odd = self.codes - SENDS - RECEIVES
        if odd and (self.messages is not None or self.bytes is not None):
            raise ValueError(f"match.requests, match.actions: {_names(odd)} can be limited by requests alone")
        return self


class Connections(_ConnectionRule):
    """At most so many connections open at once."""

    kind: Literal["connections"]
    most: int = Field(gt=0, description="connections")
    per: tuple[Literal["address", "listener"], ...] = Field(
        (), description="what has a count of its own; default: all share one"
    )


class Maintenance(_Rule):
    """Sends are refused for now, by a code that clients try again after; consumers go on."""

    kind: Literal["maintenance"]
    message: str = Field("under maintenance, try again later", min_length=1, description="what clients are told")
    DEFAULT = POSSIBLE = SENDS


class Mirror(_Rule):
    """A share of the messages that were stored is sent to another topic too; what becomes of that nobody waits for."""

    kind: Literal["mirror"]
    to: str = Field(pattern=_TOPIC, description="the other topic, by the name that brokers know")
    percent: Percent = Field(100, description="share of the requests")
    in_flight: int = Field(256, gt=0, description="copies under way; more are dropped")
    DEFAULT = POSSIBLE = _MIRRORED

    @model_validator(mode="after")
    def _elsewhere(self) -> "Mirror":
        if not self.match.topics:
            raise ValueError("match.topics: what is mirrored has to be named")
        if any(fnmatchcase(self.to, topic) for topic in self.match.topics):
            raise ValueError(f"to: {self.to} is one of the topics that are mirrored")
        return self


class Fault(_Rule):
    """A share of the requests is delayed, or answered by an error, for tests."""

    kind: Literal["fault"]
    delay: float = Field(0.0, ge=0, le=60, description="seconds until the request is served")
    error: Annotated[int, BeforeValidator(_response_code), Field(gt=0, le=_LARGEST_CODE)] | None = Field(
        None, description="response code, by name or number, instead of serving it"
    )
    percent: Percent = Field(100, description="share of the requests")
    DEFAULT = _DATA

    @model_validator(mode="after")
    def _wrong(self) -> "Fault":
        if not self.delay and self.error is None:
            raise ValueError("delay, error: one of them has to be given")
        return self


class Namespace(_ConnectionRule):
    """Topics and groups of these clients are `<namespace>%<name>` at the brokers; the clients see their own names."""

    kind: Literal["namespace"]
    namespace: str = Field(pattern=_NAMESPACE, description="the tenant")


class Alias(_ConnectionRule):
    """These clients know a topic by another name; in a namespace, both names are within it."""

    kind: Literal["alias"]
    topic: str = Field(pattern=_TOPIC, description="as the clients name it")
    real: str = Field(pattern=_TOPIC, description="as the brokers name it")

    @model_validator(mode="after")
    def _ordinary(self) -> "Alias":
        if self.topic == self.real:
            raise ValueError("topic, real: they are the same")
        for name in (self.topic, self.real):
            if name.startswith("%"):
                raise ValueError(f"topic, real: retry and dead letter topics follow their topic and group: {name}")
        return self


Rule = Annotated[
    Allow | Deny | Limit | Connections | Maintenance | Mirror | Fault | Namespace | Alias, Field(discriminator="kind")
]


class RuleFile(_Table):
    """All rules, in their order."""

    dry_run: bool = Field(False, description="count what the rules would do, and do nothing of it")
    rule: tuple[Rule, ...] = Field((), description="the rules")

    @model_validator(mode="after")
    def _distinct(self) -> "RuleFile":
        seen: set[str] = set()
        for rule in self.rule:
            if rule.name in seen:
                raise ValueError(f"rule {rule.name!r}: another rule has this name")
            seen.add(rule.name)
        aliases: dict[tuple[Match, str, str], str] = {}
        for rule in self.rule:
            if isinstance(rule, Alias):
                for key in ("topic", "real"):
                    name = getattr(rule, key)
                    other = aliases.setdefault((rule.match, key, name), rule.name)
                    if other != rule.name:
                        raise ValueError(f"rule {rule.name!r}, {key}: {other} has {name} for the same clients")
        return self

    @property
    def renames(self) -> bool:
        """Whether some clients have names of their own."""
        return any(isinstance(rule, Namespace | Alias) for rule in self.rule)


def parse(text: str) -> RuleFile:
    """The rules in a file's text. Raises RulesError."""
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise RulesError("nested too deeply") from None
    except ValueError as error:
        # Of TOML, or of a number with more digits than Python reads.
        raise RulesError(str(error)) from None
    try:
        return RuleFile.model_validate(data)
    except ValidationError as error:
        raise RulesError("\n".join(_complaint(one, data) for one in error.errors())) from None


def schema() -> dict[str, Any]:
    """The JSON schema of the file."""
    return RuleFile.model_json_schema()


_KINDS = frozenset({"allow", "deny", "limit", "connections", "maintenance", "mirror", "fault", "namespace", "alias"})
# What pydantic puts before the text of a ValueError.
_PREFIX = re.compile(r"^Value error, ")


def _complaint(error: Any, data: dict[str, Any]) -> str:
    """One mistake, with the rule's name and the key."""
    reason = {
        "extra_forbidden": "there is no such key",
        "missing": "has to be given",
        "union_tag_not_found": f"kind has to be given: {', '.join(sorted(_KINDS))}",
    }.get(error["type"], _PREFIX.sub("", error["msg"]))
    where = list(error["loc"])
    rule = ""
    if where[:1] == ["rule"] and len(where) > 1 and isinstance(where[1], int):
        rule = f"rule {_name(data, where[1])}"
        # The kind stands between the number and the key.
        where = where[3:] if len(where) > 2 and where[2] in _KINDS else where[2:]
    parts = (rule, ".".join(map(str, where)), reason)
    return ": ".join(filter(None, (", ".join(filter(None, parts[:2])), parts[2])))


def _name(data: dict[str, Any], number: int) -> str:
    rule = data["rule"][number]
    name = rule.get("name") if isinstance(rule, dict) else None
    return repr(name) if isinstance(name, str) else f"no. {number + 1}"
