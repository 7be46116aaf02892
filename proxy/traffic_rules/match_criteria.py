"""Match criteria of traffic rules, and the sets of request codes that they select from."""

from collections.abc import Mapping
from enum import IntEnum
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from remoting import requests
from remoting.broker_requests import BROKER_REQUESTS
from remoting.codes import RequestCode, ToolCode
from remoting.request_kinds import RequestKind
from remoting.requests import REQUESTS, Action, Direction, RequestSpec, codes_of

Network = IPv4Network | IPv6Network

# Rows of the requests that clients and tools send.
SELECTABLE: Mapping[int, RequestSpec] = {
    code: row for code, row in BROKER_REQUESTS.items() if row.direction is not Direction.BROKER
}
_CODES = {row.name: row.code for row in SELECTABLE.values()}


def _members(codes: frozenset[int]) -> frozenset[RequestCode]:
    return frozenset(map(RequestCode, codes))


# As members, whose names error texts show.
SENDS = _members(requests.SENDS)
RECEIVES = _members(requests.RECEIVES)
MIRRORED_SENDS = _members(codes_of(RequestKind.SEND))
# These return messages too, so that a deny rule has to cover them.
_LOOKUPS = _members(codes_of(RequestKind.LOOKUP))
# Without these a client cannot join its group, so that only a rule that names them covers them.
_REGISTRATIONS = frozenset({RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT, RequestCode.LITE_SUBSCRIPTION_CTL})
DATA_REQUESTS = _LOOKUPS | frozenset(
    RequestCode(spec.code)
    for spec in REQUESTS.values()
    if spec.action in (Action.PUB, Action.SUB)
    and spec.direction is not Direction.BROKER
    and spec.code not in _REGISTRATIONS
)
_VERSION = r"^\d+(\.\d+){0,2}$"


class Table(BaseModel):
    """A table of the rules file: immutable, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _request_code(value: object) -> object:
    """Return the request code of a name."""
    if not isinstance(value, str):
        raise ValueError("expected the name of a request code, such as SEND_MESSAGE_V2")
    if value not in _CODES:
        raise ValueError(f"clients send no request {value!r}")
    return _CODES[value]


def _network(value: object) -> object:
    """Return the network of a text. One error names the mistake, not one for each version of IP."""
    if not isinstance(value, str):
        raise ValueError("expected a network as text, such as 10.0.0.0/8")
    try:
        network = ip_network(value, strict=False)
    except ValueError:
        raise ValueError(f"{value!r} is not an IP address or network, such as 10.0.0.0/8 or fd00::/8") from None
    if ip_address(value.partition("/")[0]) != network.network_address:
        raise ValueError(f"{value!r} has host bits set; the network is {network}")
    return network


Globs = tuple[Annotated[str, Field(min_length=1)], ...]


class Match(Table):
    """Criteria for requests. A request matches if it meets every criterion; one value of each is enough."""

    protocols: tuple[Literal["remoting", "grpc"], ...] = Field((), description="client protocols")
    listeners: Globs = Field((), description="listener names, globs")
    server_names: Globs = Field((), description="server names that TLS clients requested (SNI), globs")
    subjects: Globs = Field((), description="distinguished names of client certificates (RFC 4514), globs")
    networks: tuple[Annotated[Network, BeforeValidator(_network)], ...] = Field(
        (), description="client networks, such as 10.0.0.0/8"
    )
    clients: Globs = Field((), description="client ids, globs; remoting clients send theirs with the first heartbeat")
    users: Globs = Field((), description="authenticated users, globs; no user while authentication is off")
    languages: Globs = Field((), description="client languages, such as JAVA, globs that ignore case")
    version_from: Annotated[str, Field(pattern=_VERSION)] | None = Field(
        None, description="lowest client version that matches"
    )
    version_below: Annotated[str, Field(pattern=_VERSION)] | None = Field(
        None, description="lowest client version that no longer matches"
    )
    topics: Globs = Field((), description="topics by their broker-side names, globs")
    groups: Globs = Field(
        (), description="groups by their broker-side names, globs; the group of a gRPC producer is its topic"
    )
    actions: tuple[Literal["Pub", "Sub", "Get", "Create", "Update", "Delete"], ...] = Field(
        (), description="actions of the request table"
    )
    requests: tuple[Annotated[RequestCode | ToolCode, BeforeValidator(_request_code)], ...] = Field(
        (), description="request codes by name, including those that gRPC calls translate to"
    )

    # Criteria that can be checked when a connection opens.
    CONNECTION_KEYS: ClassVar = frozenset({"protocols", "listeners", "server_names", "subjects", "networks"})

    @field_validator("*")
    @classmethod
    def _check_values(cls, value: object) -> object:
        # A key without values would select everything, where its author may expect nothing.
        if value == ():
            raise ValueError("the list is empty; a key that is left out fits everything")
        return value

    def given(self) -> set[str]:
        """Return the names of the criteria that are set."""
        return {name for name in type(self).model_fields if getattr(self, name)}

    def codes(self, default: frozenset[IntEnum]) -> frozenset[IntEnum]:
        """Return the request codes that `requests` and `actions` both select; `default` if neither is given."""
        if self.requests:
            return frozenset(code for code in self.requests if self._has_action(code))
        if not self.actions:
            return default
        return frozenset(
            row.code for row in SELECTABLE.values() if self._has_action(row.code) and row.code not in _REGISTRATIONS
        )

    def _has_action(self, code: IntEnum) -> bool:
        return not self.actions or SELECTABLE[code].action.value in self.actions
