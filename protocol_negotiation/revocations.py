"""Revoked certificates, for connections that have been open since before the revocation: OpenSSL checks handshakes."""

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from protocol_negotiation.certificates import revocation_lists
from protocol_negotiation.tls_files import TlsError

if TYPE_CHECKING:
    from cryptography import x509


class Revocations:
    """The certificates that the revocation lists of a file name. Raises TlsError."""

    def __init__(self, path: Path) -> None:
        # The issuer of each list, and its serial numbers: cryptography reads a list from its beginning at each look-up.
        self._lists: list[tuple[x509.Name, frozenset[int]]] = []
        try:
            for item in revocation_lists(path):
                self._lists.append((item.issuer, frozenset(entry.serial_number for entry in item)))
        except OSError as error:
            raise TlsError(f"{path}: {error.strerror}") from error
        except ValueError as error:
            raise TlsError(f"{path}: not a revocation list: {error}") from error

    def may_contain(self, serial_number: int) -> bool:
        """Return whether a list has this number, which certificates of other authorities may have, too."""
        return any(serial_number in numbers for _, numbers in self._lists)

    def contain_peer(self, connection: ssl.SSLObject) -> bool:
        """Return whether they contain the certificate of a connection's peer, if it has one."""
        encoded = connection.getpeercert(binary_form=True)
        return encoded is not None and self.contain(encoded)

    def contain(self, encoded: bytes) -> bool:
        """Return whether the list of its issuer has a certificate, in DER.

        False for one that OpenSSL has accepted and cryptography cannot read: the next handshake decides.
        """
        from cryptography import x509

        try:
            certificate = x509.load_der_x509_certificate(encoded)
            issuer, serial_number = certificate.issuer, certificate.serial_number
        except ValueError:
            return False
        return any(issuer == name and serial_number in numbers for name, numbers in self._lists)
