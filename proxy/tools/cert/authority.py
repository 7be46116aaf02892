"""A certificate authority in a directory: issues certificates of servers and clients, and revokes them.

The directory has mode 0700, key files 0600.
"""

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from protocol_negotiation.new_certificate import begin, name_of, new_key, pem

_CA_DAYS = 3650
_PRIVATE, _PUBLIC, _DIRECTORY = 0o600, 0o644, 0o700
# Validity begins earlier, for hosts with a slow clock.
_MAX_CLOCK_SKEW = datetime.timedelta(hours=1)
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]*")
_RESERVED = ("ca", "crl")


class CertificateError(Exception):
    """The directory or a request does not permit a certificate; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Issued:
    """The files of an issued certificate."""

    certificate: Path
    key: Path


class Authority:
    """The authority in a directory; both are created if they do not exist. Raises OSError, CertificateError."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.certificate_file, self.crl_file = directory / "ca.pem", directory / "crl.pem"
        self._key_file = directory / "ca.key"
        directory.mkdir(mode=_DIRECTORY, parents=True, exist_ok=True)
        self.created = not self._key_file.exists()
        if self.created:
            self._create()
        self._certificate, self._key = self._load()
        if not self.crl_file.exists():
            self._write_revocations([], _CA_DAYS)

    def issue_server(self, name: str, hosts: Sequence[str], days: int, *, replace: bool = False) -> Issued:
        """Issue a certificate for host names and IP addresses. Raises CertificateError."""
        names = [_host(host) for host in hosts]
        return self._issue(name, hosts[0], names, ExtendedKeyUsageOID.SERVER_AUTH, days, replace)

    def issue_client(self, name: str, days: int, *, replace: bool = False) -> Issued:
        """Issue a client certificate with the subject ``CN=name``. Raises CertificateError."""
        return self._issue(name, name, [], ExtendedKeyUsageOID.CLIENT_AUTH, days, replace)

    def revoke(self, name: str, days: int) -> None:
        """Add an issued certificate to the revocation list. Raises CertificateError."""
        path = self.directory / f"{_checked(name)}.pem"
        try:
            certificate = x509.load_pem_x509_certificate(path.read_bytes())
        except OSError as error:
            raise CertificateError(f"{path}: {error.strerror}") from None
        except ValueError as error:
            raise CertificateError(f"{path} is not a certificate: {error}") from None
        if certificate.issuer != self._certificate.subject:
            raise CertificateError(f"{path} was not issued by {self.certificate_file}")
        revoked = list(x509.load_pem_x509_crl(self.crl_file.read_bytes()))
        if certificate.serial_number not in [item.serial_number for item in revoked]:
            builder = x509.RevokedCertificateBuilder().serial_number(certificate.serial_number)
            revoked.append(builder.revocation_date(_now()).build())
        self._write_revocations(revoked, days)

    def _issue(
        self,
        name: str,
        common_name: str,
        names: list[x509.GeneralName],
        usage: x509.ObjectIdentifier,
        days: int,
        replace: bool,
    ) -> Issued:
        files = Issued(self.directory / f"{_checked(name)}.pem", self.directory / f"{name}.key")
        if not replace and (files.certificate.exists() or files.key.exists()):
            raise CertificateError(f"{files.certificate} exists: use --force to replace it, or another name")
        key = new_key()
        end = min(_now() + datetime.timedelta(days=days), self._certificate.not_valid_after_utc)
        builder = (
            begin(name_of(common_name[:64]), self._certificate.subject, key, _now() - _MAX_CLOCK_SKEW, end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, SHA256())
        _write(files.key, pem(key), _PRIVATE)
        _write(files.certificate, certificate.public_bytes(Encoding.PEM), _PUBLIC)
        return files

    def _create(self) -> None:
        key, name = new_key(), name_of(f"Gantry development CA {os.urandom(4).hex()}")
        end = _now() + datetime.timedelta(days=_CA_DAYS)
        certificate = (
            begin(name, name, key, _now() - _MAX_CLOCK_SKEW, end)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_CA_USAGE, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, SHA256())
        )
        _write(self._key_file, pem(key), _PRIVATE)
        _write(self.certificate_file, certificate.public_bytes(Encoding.PEM), _PUBLIC)

    def _load(self) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
        try:
            key = load_pem_private_key(self._key_file.read_bytes(), None)
            certificate = x509.load_pem_x509_certificate(self.certificate_file.read_bytes())
        except (OSError, ValueError, TypeError) as error:
            raise CertificateError(f"the authority in {self.directory} cannot be used: {error}") from None
        if not isinstance(key, EllipticCurvePrivateKey):
            raise CertificateError(f"{self._key_file} was not made by gantry cert")
        return certificate, key

    def _write_revocations(self, revoked: Sequence[x509.RevokedCertificate], days: int) -> None:
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._certificate.subject)
            .last_update(_now() - _MAX_CLOCK_SKEW)
            .next_update(_now() + datetime.timedelta(days=days))
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .add_extension(x509.CRLNumber(int(_now().timestamp())), critical=False)
        )
        for item in revoked:
            builder = builder.add_revoked_certificate(item)
        _write(self.crl_file, builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM), _PUBLIC)


_CA_USAGE = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Replace a file at once, so that a server that reloads it never reads a part. Raises OSError."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    unfinished.replace(path)


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        pass
    try:
        return x509.DNSName(text)
    except ValueError:
        raise CertificateError(f"{text!r} is neither a host name in ASCII nor an IP address") from None


def _checked(name: str) -> str:
    if not _FILE_NAME.fullmatch(name) or name in _RESERVED:
        raise CertificateError(f"{name!r} cannot be the name of a certificate")
    return name


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
