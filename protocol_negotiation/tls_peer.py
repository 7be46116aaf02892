"""The parameters of an established TLS connection, and the identity in the client's certificate."""

import hashlib
import ssl
from calendar import timegm
from collections.abc import Mapping
from typing import Any, Literal
from weakref import WeakKeyDictionary

from protocol_negotiation.peer import PeerCertificate, Tls, canonical_host

# On the server's side, ssl passes the client's SNI to this callback only.
_server_names: WeakKeyDictionary[ssl.SSLObject, str] = WeakKeyDictionary()


def remember_server_name(connection: Any, server_name: str | None, _: ssl.SSLContext) -> None:
    """Keep the client's SNI for `negotiated_tls`; a callback of ``SSLContext.sni_callback``."""
    if server_name:
        _server_names[connection] = server_name


def negotiated_tls(connection: ssl.SSLObject) -> Tls:
    """Return the parameters of a connection whose handshake is complete."""
    cipher = connection.cipher()
    certificate = connection.getpeercert()
    return Tls(
        version=connection.version() or "",
        cipher=cipher[0] if cipher else "",
        server_name=_server_names.get(connection),
        subject=distinguished_name(certificate),
        certificate=None if not certificate else _peer_certificate(connection, certificate),
    )


def _peer_certificate(connection: ssl.SSLObject, certificate: Any) -> PeerCertificate:
    encoded = connection.getpeercert(binary_form=True) or b""
    return PeerCertificate(
        subject=distinguished_name(certificate) or "",
        issuer=_name(certificate.get("issuer", ())) or "",
        alternative_names=tuple(
            (_NAME_KINDS[kind], _canonical(kind, value))
            for kind, value in certificate.get("subjectAltName", ())
            if kind in _NAME_KINDS
        ),
        fingerprint=hashlib.sha256(encoded).hexdigest(),
        serial_number=certificate.get("serialNumber", "").lower(),
        not_after=not_after(certificate),
    )


def not_after(certificate: Any) -> float:
    """Return the end of validity in the result of ``getpeercert()``, as Unix time; there is a certificate."""
    return _seconds(certificate["notAfter"])


def _canonical(kind: str, value: str) -> str:
    """Return an alternative name; ssl writes IPv6 addresses in capitals and without `::`."""
    return canonical_host(value.strip()) if kind == _IP_ADDRESS else value


def _seconds(text: str) -> float:
    """Convert a time such as `Nov  2 22:22:07 2027 GMT` to Unix time, in a tenth of the time of ssl's function."""
    month, day, time, year, _ = text.split()
    hour, minute, second = time.split(":")
    return float(timegm((int(year), _MONTHS[month], int(day), int(hour), int(minute), int(second))))


_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: number for number, name in enumerate(_NAMES, 1)}

# RFC 4514 section 3: the short names that all implementations recognize.
_SHORT_NAMES = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_IP_ADDRESS = "IP Address"
# Kinds of alternative names as ssl writes them, and as `PeerCertificate` does.
_NAME_KINDS: Mapping[str, Literal["dns", "email", "ip", "uri"]] = {
    "DNS": "dns",
    "email": "email",
    _IP_ADDRESS: "ip",
    "URI": "uri",
}
_SPECIAL = str.maketrans({character: f"\\{character}" for character in '\\"+,;<>'})


def distinguished_name(certificate: Any) -> str | None:
    """Return the subject in the result of ``getpeercert()`` as in RFC 4514; None without certificate or subject."""
    return _name((certificate or {}).get("subject", ()))


def _name(relative_names: Any) -> str | None:
    return ",".join("+".join(_attribute(*pair) for pair in names) for names in reversed(relative_names)) or None


def _attribute(name: str, value: str) -> str:
    escaped = value.translate(_SPECIAL)
    if escaped[:1] in (" ", "#"):
        escaped = f"\\{escaped}"
    if escaped.endswith(" ") and len(value) > 1:
        escaped = f"{escaped[:-1]}\\ "
    return f"{_SHORT_NAMES.get(name, name)}={escaped}"
