"""A peer's address and certificate in the notation of grpcio's contexts."""

import re
from collections.abc import Mapping
from ipaddress import IPv6Address
from urllib.parse import quote

from protocol_negotiation.peer import Peer

COMMON_NAME = "x509_common_name"
# RFC 4514: attributes are joined by commas, and a comma inside one is escaped.
_common_name = re.compile(r"(?:^|[,+])CN=((?:\\.|[^,+\\])*)").search
_escaped = re.compile(r"\\([0-9A-Fa-f]{2}|.)")


def peer_uri(peer: Peer) -> str:
    """Return ``ipv4:1.2.3.4:567``, ``ipv6:%5B::1%5D:567`` or ``unix:/path``, as grpcio's `context.peer()` does."""
    address = peer.address
    if address.is_unix:
        return str(address)
    if isinstance(address.ip, IPv6Address):
        return f"ipv6:{quote(str(address), safe=':')}"
    return f"ipv4:{address}"


def auth_context(peer: Peer) -> Mapping[str, list[bytes]]:
    """Return the properties of the peer's TLS connection; empty without TLS."""
    tls = peer.tls
    if tls is None:
        return {}
    context = {
        "transport_security_type": [b"ssl"],
        "security_level": [b"TSI_PRIVACY_AND_INTEGRITY"],
        "ssl_session_reused": [b"false"],
    }
    if tls.subject is not None:
        context["x509_subject"] = [tls.subject.encode()]
        name = _common_name(tls.subject)
        if name is not None:
            context[COMMON_NAME] = [_escaped.sub(_unescape, name[1]).encode("utf-8", "surrogateescape")]
    return context


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return bytes.fromhex(code).decode("latin-1") if len(code) == 2 else code
