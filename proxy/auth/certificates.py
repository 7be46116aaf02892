"""Names in client certificates that stand for users."""

from collections.abc import Iterator

from protocol_negotiation.peer import PeerCertificate


def certificate_names(certificate: PeerCertificate) -> Iterator[str]:
    """Yield the names of a certificate, as users have them: fingerprint, alternative names, subject."""
    yield f"sha256:{certificate.fingerprint}"
    for kind, value in certificate.alternative_names:
        yield f"{kind}:{value}"
    if certificate.subject:
        yield certificate.subject
