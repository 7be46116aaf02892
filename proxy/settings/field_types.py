"""Field types that several settings tables share: addresses, networks and lists written as one text."""

import ipaddress
from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_settings import NoDecode

from protocol_negotiation.advertised_address import resolve
from protocol_negotiation.peer import HostPort

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
TopicName = Annotated[str, Field(pattern=r"^[%|a-zA-Z0-9_-]{1,127}$")]


class SettingsTable(BaseModel):
    """A table of settings: immutable, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def split_list(separators: str) -> Callable[[object], object]:
    """Return a validator that splits a text at any of the separators and leaves other values as they are."""

    def split(value: object) -> object:
        if not isinstance(value, str):
            return value
        for separator in separators[1:]:
            value = value.replace(separator, separators[0])
        return [part.strip() for part in value.split(separators[0]) if part.strip()]

    return split


# RocketMQ's own tools separate addresses by either character.
split_addresses = split_list(";,")


def _address(text: str) -> str:
    HostPort.parse(text)
    return text


def _remote_address(text: str) -> str:
    address = HostPort.parse(text)
    if address.is_unix or not address.host or not address.port:
        raise ValueError(f"needs a host and a port: {text!r}")
    return text


def _fixed_port_address(text: str) -> str:
    address = HostPort.parse(text)
    if address.is_unix or not address.port:
        raise ValueError(f"needs a TCP port other than 0: {text!r}")
    return text


def _ip_address(text: str) -> str:
    if HostPort.parse(_remote_address(text)).ip is None:
        raise ValueError(f"needs an IP address and a port: {text!r}")
    return text


def _advertised_address(text: str) -> str:
    resolve(text, 0)
    return text


# host:port or :port; the port may be 0.
Address = Annotated[str, AfterValidator(_address)]
# host:port, both given.
RemoteAddress = Annotated[str, AfterValidator(_remote_address)]
# host:port or :port; the port is not 0.
FixedPortAddress = Annotated[str, AfterValidator(_fixed_port_address)]
# ip:port, both given.
IpAddress = Annotated[str, AfterValidator(_ip_address)]
# host or host:port.
AdvertisedAddress = Annotated[str, AfterValidator(_advertised_address)]
# NoDecode: an environment variable holds a text, not JSON.
RemoteAddresses = Annotated[list[RemoteAddress], BeforeValidator(split_addresses), NoDecode]
Networks = Annotated[list[Network], BeforeValidator(split_addresses), NoDecode]
