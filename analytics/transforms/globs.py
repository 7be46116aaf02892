"""Patterns of the traffic rules as conditions on columns."""

import re
from collections.abc import Iterable
from functools import reduce
from ipaddress import IPv4Network, IPv6Network

from pyspark.sql import Column
from pyspark.sql import functions as f


def pattern(glob: str) -> str:
    """Translate a shell glob, as in fnmatch, into a Java regular expression for the whole text."""
    parts = re.split(r"(\*|\?|\[!?\]?[^\]]*\])", glob)
    return "^" + "".join(map(_part, parts)) + "$"


def _part(part: str) -> str:
    if part == "*":
        return ".*"
    if part == "?":
        return "."
    if part.startswith("[") and part.endswith("]") and len(part) > 2:
        inside = part[1:-1].replace("\\", "\\\\").replace("&&", "&\\&")
        return f"[^{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"
    return re.sub(r"([^A-Za-z0-9_])", r"\\\1", part)


def any_glob(column: Column, globs: Iterable[str]) -> Column:
    """Return whether the text matches one of the globs; null matches none."""
    return f.coalesce(_any(column.rlike(pattern(glob)) for glob in globs), f.lit(False))


def any_network(address: Column, networks: Iterable[IPv4Network | IPv6Network]) -> Column:
    """Return whether the address, as text, is in one of the networks. IPv6 networks must be single addresses."""
    octets = f.split(address, r"\.")
    number = sum(
        (f.try_element_at(octets, f.lit(4 - place)).try_cast("long") * 256**place for place in range(4)), f.lit(0)
    )
    return f.coalesce(_any(_within(address, number, network) for network in networks), f.lit(False))


def _within(address: Column, number: Column, network: IPv4Network | IPv6Network) -> Column:
    if isinstance(network, IPv6Network):
        return address == str(network.network_address)
    first, last = int(network.network_address), int(network.broadcast_address)
    return address.contains(".") & number.between(first, last)


def _any(conditions: Iterable[Column]) -> Column:
    return reduce(Column.__or__, conditions, f.lit(False))
