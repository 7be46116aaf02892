"""Content of certificate files: names, and ends of validity."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from protocol_negotiation.tls_files import TlsError

if TYPE_CHECKING:
    from cryptography import x509

_BEGIN_CRL = b"-----BEGIN X509 CRL-----"


def host_names(path: Path) -> list[str]:
    """Return the DNS names in the first certificate of a file. Raises TlsError if it has none."""
    from cryptography import x509

    try:
        extension = _certificates(path)[0].extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = extension.value.get_values_for_type(x509.DNSName)
    except (ValueError, x509.ExtensionNotFound):
        names = []
    if not names:
        raise TlsError(f"{path}: the certificate contains no DNS name, so its names must be configured")
    return names


def not_after(path: Path) -> float | None:
    """Return the end of validity of a certificate file, Unix time in seconds; None if the file cannot be read.

    Of several certificates, the earliest end counts: a chain is valid as long as all of its certificates.
    """
    try:
        return min(item.not_valid_after_utc.timestamp() for item in _certificates(path))
    except (OSError, ValueError):
        return None


def next_update(path: Path) -> float | None:
    """Return the earliest next update of the revocation lists in a file, Unix time in seconds; None without any."""
    try:
        updates = [item.next_update_utc for item in revocation_lists(path)]
    except (OSError, ValueError):
        return None
    return min((update.timestamp() for update in updates if update is not None), default=None)


def revocation_lists(path: Path) -> "list[x509.CertificateRevocationList]":
    """Return the revocation lists of a file. Raises OSError, ValueError."""
    # The import takes 60 ms.
    from cryptography import x509

    return [x509.load_pem_x509_crl(_BEGIN_CRL + part) for part in path.read_bytes().split(_BEGIN_CRL)[1:]]


def _certificates(path: Path) -> "list[x509.Certificate]":
    from cryptography import x509

    with warnings.catch_warnings():
        # OpenSSL judges whether a certificate is acceptable.
        warnings.simplefilter("ignore")
        return x509.load_pem_x509_certificates(path.read_bytes())
