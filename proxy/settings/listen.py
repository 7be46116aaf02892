"""Settings of the listeners (key `listen`)."""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, field_validator
from pydantic_settings import NoDecode

from protocol_negotiation.advertised_address import Advertise, AdvertiseRule
from protocol_negotiation.peer import HostPort
from proxy.settings.field_types import AdvertisedAddress, Networks, SettingsTable, split_addresses


class AdvertiseRuleSettings(SettingsTable):
    """The address advertised to clients of certain networks."""

    networks: Networks = Field(description="networks of the clients that the rule is for")
    address: AdvertisedAddress = Field(description="host:port or host that is advertised to them")


class ListenSettings(SettingsTable):
    """One listener; the short form is its address alone."""

    address: str = Field(description="host:port, :port for every interface, [::1]:port, or unix:/path")
    name: str = Field("", description="name in logs and metrics; default: the address")
    advertise: AdvertisedAddress | None = Field(
        None, description="host:port or host in routes for clients; default: the address that the client connected to"
    )
    advertise_rules: list[AdvertiseRuleSettings] = Field(
        [], description="addresses advertised to clients of certain networks instead; the first matching rule applies"
    )
    broker: str | None = Field(
        None, description="broker of requests that name none (clients before 4.9.5 name none); default: any broker"
    )
    socket_mode: str = Field(
        "600",
        pattern="^0?[0-7]{3}$",
        description="permissions of a Unix socket's file, octal; 660 admits its group. Whoever may open it chooses the "
        "client address with a PROXY header",
    )
    tls: bool = Field(True, description="accept TLS as tls.mode says; false: plain text only")
    trusted_proxies: Networks = Field(
        [],
        description="networks from which PROXY protocol headers are accepted; on a Unix socket, those of every client "
        "are",
    )
    max_connections: int = Field(50_000, gt=0, description="open connections; further connections are rejected")
    max_connections_per_address: int = Field(
        5_000,
        ge=0,
        description="open connections from one IPv4 address or IPv6 /64 network (the client's, if a PROXY header of a "
        "trusted proxy names it); 0: unlimited; Unix sockets and trusted proxies without a header are exempt",
    )

    @field_validator("address")
    @classmethod
    def _validate_address(cls, text: str) -> str:
        if not text.startswith("unix:"):
            HostPort.parse(text)
        return text

    @property
    def advertised(self) -> Advertise:
        """The advertised addresses as an option of the negotiation layer."""
        rules = tuple(AdvertiseRule(tuple(rule.networks), rule.address) for rule in self.advertise_rules)
        return Advertise(self.advertise, rules)


def _expand(value: object) -> object:
    """Replace each address by a table with that address."""
    value = split_addresses(value)
    if isinstance(value, list):
        return [{"address": item} if isinstance(item, str) else item for item in value]
    return value


def _check_unique(listeners: list[ListenSettings]) -> list[ListenSettings]:
    for kind, values in (
        ("name", [item.name or item.address for item in listeners]),
        ("broker", [item.broker for item in listeners if item.broker is not None]),
    ):
        duplicates = sorted({value for value in values if values.count(value) > 1})
        if duplicates:
            raise ValueError(f"two listeners have the {kind} {', '.join(duplicates)}")
    return listeners


Listeners = Annotated[list[ListenSettings], BeforeValidator(_expand), AfterValidator(_check_unique), NoDecode]
