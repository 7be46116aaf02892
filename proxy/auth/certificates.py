"""Names in client certificates that stand for users."""

from collections.abc import Iterator

from protocol_negotiation.peer import PeerCertificate, canonical_host

_IP = "ip:"


def certificate_names(certificate: PeerCertificate) -> Iterator[str]:
    """Yield the names of a certificate, as users have them: fingerprint, alternative names, subject."""
    yield f"sha256:{certificate.fingerprint}"
    for kind, value in certificate.alternative_names:
        yield f"{kind}:{value}"
    if certificate.subject:
        yield certificate.subject


def canonical_name(name: str) -> str:
    """Return a name of a user as `certificate_names` would: an IP address in canonical form."""
    return f"{_IP}{canonical_host(name.removeprefix(_IP).strip())}" if name.startswith(_IP) else name
