"""Kinds of traffic rules and the rules file, as validated models. Pure.

`effects` and `rate_limits` implement the rules on requests, `connection_limits` and `tenancy` those on connections.
"""

from collections.abc import Iterable
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from proxy.traffic_rules.match_criteria import DATA_REQUESTS, MIRRORED_SENDS, RECEIVES, SELECTABLE, SENDS, Match, Table
from remoting.codes import ResponseCode
from remoting.requests import Action

_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
# RocketMQ's TopicValidator.
_TOPIC = r"^[%|a-zA-Z0-9_-]{1,127}$"
# Shorter than a topic, because it is the prefix of one.
_NAMESPACE = r"^[A-Za-z0-9_-]{1,48}$"
# The binary header has two bytes for a response code; a larger code would be cut, perhaps to SUCCESS.
_MAX_RESPONSE_CODE = 2**15 - 1

Percent = Annotated[float, Field(gt=0, le=100)]


def _response_code(value: object) -> object:
    """Return a response code by its name; numbers pass unchanged."""
    if isinstance(value, str):
        if value not in ResponseCode.__members__:
            raise ValueError(f"unknown response code {value!r}")
        return int(ResponseCode[value])
    return value


def _code_names(codes: Iterable[IntEnum]) -> str:
    return ", ".join(sorted(code.name for code in codes))


class _Rule(Table):
    name: str = Field(pattern=_NAME, description="name in metrics, logs and rejections")
    dry_run: bool = Field(False, description="count the effects of the rule without carrying them out")
    match: Match = Field(Match(), description="criteria for requests or connections; default: all")

    # Request codes of a rule whose match names neither actions nor requests.
    DEFAULT: ClassVar[frozenset[IntEnum]] = frozenset()
    # Request codes that the kind supports; None: all.
    SUPPORTED: ClassVar[frozenset[IntEnum] | None] = None

    @property
    def codes(self) -> frozenset[IntEnum]:
        """Request codes that the rule applies to."""
        codes = self.match.codes(self.DEFAULT)
        return codes if self.SUPPORTED is None else codes & self.SUPPORTED

    @model_validator(mode="after")
    def _check_codes(self) -> "_Rule":
        if self.SUPPORTED is not None and not self.codes:
            raise ValueError(
                f"match.actions, match.requests: rules of this kind apply to {_code_names(self.SUPPORTED)}, "
                "and none of these matches"
            )
        if (self.match.actions or self.match.requests) and not self.codes:
            raise ValueError("match.actions, match.requests: no request fits all of them")
        return self


class _ConnectionRule(_Rule):
    """A rule that is applied when a connection opens."""

    CRITERIA: ClassVar[frozenset[str]] = Match.CONNECTION_KEYS

    @model_validator(mode="after")
    def _check_criteria(self) -> "_ConnectionRule":
        unsupported = self.match.given() - self.CRITERIA
        if unsupported:
            raise ValueError(
                f"match.{min(unsupported)}: rules of this kind are applied when a connection opens; they support only "
                f"{', '.join(sorted(self.CRITERIA))}"
            )
        return self


class _NameRule(_ConnectionRule):
    """A rule about names, which are chosen when a connection opens or its user is authenticated."""

    CRITERIA = Match.CONNECTION_KEYS | {"users"}


class Allow(_Rule):
    """Exempt matching requests from the deny rules that follow."""

    kind: Literal["allow"]
    DEFAULT = DATA_REQUESTS


class Deny(_Rule):
    """Reject matching requests: NO_PERMISSION for remoting clients, FORBIDDEN for gRPC clients."""

    kind: Literal["deny"]
    DEFAULT = DATA_REQUESTS


class Limit(_Rule):
    """Limit a rate: sends beyond it are rejected, receives wait."""

    kind: Literal["limit"]
    messages: float | None = Field(None, gt=0, description="messages per second")
    bytes: float | None = Field(None, gt=0, description="body bytes per second")
    requests: float | None = Field(None, gt=0, description="requests per second")
    burst: float = Field(1.0, gt=0, le=3600, description="burst size, in seconds at the limit's rate")
    per: tuple[Literal["client", "user", "group", "topic", "address", "connection"], ...] = Field(
        (), description="attributes whose values are counted separately; default: one count"
    )
    DEFAULT = SENDS | RECEIVES

    @property
    def codes(self) -> frozenset[IntEnum]:
        """Request codes that the rule applies to.

        The actions Pub and Sub stand for sends and receives only: a consumer whose acknowledgements are rejected would
        receive its messages again.
        """
        codes = super().codes
        if self.match.requests:
            return codes
        return frozenset(
            code for code in codes if code in self.DEFAULT or SELECTABLE[code].action not in (Action.PUB, Action.SUB)
        )

    @model_validator(mode="after")
    def _check_units(self) -> "Limit":
        if self.messages is None and self.bytes is None and self.requests is None:
            raise ValueError("messages, bytes, requests: at least one is required")
        unmeasured = self.codes - SENDS - RECEIVES
        if unmeasured and (self.messages is not None or self.bytes is not None):
            raise ValueError(
                f"match.requests, match.actions: {_code_names(unmeasured)} can only be limited by `requests`"
            )
        return self


class ConnectionLimit(_ConnectionRule):
    """Limit the number of open connections."""

    kind: Literal["connections"]
    most: int = Field(gt=0, description="maximum number of open connections")
    per: tuple[Literal["address", "listener"], ...] = Field(
        (), description="attributes whose values are counted separately; default: one count"
    )


class Maintenance(_Rule):
    """Reject sends with a code after which producers retry. Consumers are not affected."""

    kind: Literal["maintenance"]
    message: str = Field("under maintenance, try again later", min_length=1, description="text of the rejection")
    DEFAULT = SUPPORTED = SENDS


class Mirror(_Rule):
    """Copy a share of the stored messages to another topic, without delaying their producers."""

    kind: Literal["mirror"]
    to: str = Field(pattern=_TOPIC, description="target topic, by its broker-side name")
    percent: Percent = Field(100, description="share of the requests")
    in_flight: int = Field(256, gt=0, description="maximum number of in-flight copies; copies beyond it are dropped")
    DEFAULT = SUPPORTED = MIRRORED_SENDS

    @model_validator(mode="after")
    def _check_topics(self) -> "Mirror":
        if not self.match.topics:
            raise ValueError("match.topics: required for a mirror")
        if any(fnmatchcase(self.to, topic) for topic in self.match.topics):
            raise ValueError(f"to: {self.to} is one of the mirrored topics")
        return self


class Fault(_Rule):
    """Delay a share of the requests, or answer it with an error, for tests."""

    kind: Literal["fault"]
    delay: float = Field(0.0, ge=0, le=60, description="seconds until the request is served")
    error: Annotated[int, BeforeValidator(_response_code), Field(gt=0, le=_MAX_RESPONSE_CODE)] | None = Field(
        None, description="response code, by name or number, to answer instead of serving the request"
    )
    percent: Percent = Field(100, description="share of the requests")
    DEFAULT = DATA_REQUESTS

    @model_validator(mode="after")
    def _check_effect(self) -> "Fault":
        if not self.delay and self.error is None:
            raise ValueError("delay, error: at least one is required")
        return self


class Namespace(_NameRule):
    """Place clients in a namespace: their topics and groups are `<namespace>%<name>` on the brokers."""

    kind: Literal["namespace"]
    namespace: str = Field(pattern=_NAMESPACE, description="namespace of the tenant")


class Alias(_NameRule):
    """Give clients another name for a topic. In a namespace both names are relative to it."""

    kind: Literal["alias"]
    topic: str = Field(pattern=_TOPIC, description="name that clients use")
    real: str = Field(pattern=_TOPIC, description="name on the brokers")

    @model_validator(mode="after")
    def _check_names(self) -> "Alias":
        if self.topic == self.real:
            raise ValueError("topic, real: the names are equal")
        for name in (self.topic, self.real):
            if name.startswith("%"):
                raise ValueError(
                    f"topic, real: {name} is a retry or dead letter topic, which is renamed with its topic and group"
                )
        return self


Rule = Annotated[
    Allow | Deny | Limit | ConnectionLimit | Maintenance | Mirror | Fault | Namespace | Alias,
    Field(discriminator="kind"),
]


class RuleFile(Table):
    """Contents of a rules file. Rules are evaluated in their order."""

    dry_run: bool = Field(False, description="count the effects of all rules without carrying them out")
    rule: tuple[Rule, ...] = Field((), description="the rules")

    @model_validator(mode="after")
    def _check_uniqueness(self) -> "RuleFile":
        names: set[str] = set()
        for rule in self.rule:
            if rule.name in names:
                raise ValueError(f"rule {rule.name!r}: the name is used by another rule")
            names.add(rule.name)
        aliases: dict[tuple[Match, str, str], str] = {}
        for rule in self.rule:
            if isinstance(rule, Alias):
                for key in ("topic", "real"):
                    name = getattr(rule, key)
                    other = aliases.setdefault((rule.match, key, name), rule.name)
                    if other != rule.name:
                        raise ValueError(f"rule {rule.name!r}, {key}: rule {other!r} has {name} for the same clients")
        return self
