"""A scan of a TLS port: versions, ciphers, curves, compression, renegotiation, resumption, ALPN, names.

`python -m tests.protocol_negotiation.tls_scan HOST:PORT [NAME …]` prints the report of a running server.
"""

import contextlib
import ctypes
import socket
import ssl
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography import x509

_VERSIONS = (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
# Every cipher of TLS 1.2 and before that this OpenSSL has, at any security level.
_ALL_CIPHERS = "ALL:COMPLEMENTOFALL:@SECLEVEL=0"
_TIMEOUT = 30.0


@dataclass
class Report:
    """The results of a scan.

    accepted_ciphers: those of TLS 1.2, in the order in which the server chose them. resumed: versions with resumption.
    names: common name of the certificate by requested server name.
    """

    versions: list[str] = field(default_factory=list)
    accepted_ciphers: list[str] = field(default_factory=list)
    compression: str | None = None
    renegotiation: bool | None = None
    resumed: list[str] = field(default_factory=list)
    alpn: dict[str, str | None] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    @property
    def weak_ciphers(self) -> list[str]:
        """Accepted ciphers without forward secrecy or without authenticated encryption."""
        return [
            name
            for name in self.accepted_ciphers
            if not name.startswith("ECDHE-") or not ("GCM" in name or "CHACHA20" in name)
        ]


class Scanner:
    """A scan of one address. Its methods block. certificate: files of a client certificate and its key."""

    def __init__(self, host: str, port: int, certificate: tuple[str, str] | None = None) -> None:
        self._address = (host, port)
        self._certificate = certificate

    def scan(self, names: Sequence[str] = ()) -> Report:
        """Return the report."""
        report = Report()
        report.versions = [version.name for version in _VERSIONS if self._accepts(version)]
        if "TLSv1_2" in report.versions:
            report.accepted_ciphers = list(self._ciphers())
            report.renegotiation = self._renegotiates()
        with self._connect(self._context()) as connection:
            report.compression = connection.compression()
        report.resumed = [version.name for version in _VERSIONS[2:] if self._resumes(version)]
        for offer in ("", "h2", "http/1.1"):
            with self._connect(self._context(alpn=offer)) as connection:
                report.alpn[offer] = connection.selected_alpn_protocol()
        for name in names:
            with self._connect(self._context(), name) as connection:
                report.names[name] = _common_name(connection)
        return report

    def resumes(self, version: ssl.TLSVersion, connections: int) -> int:
        """Return the number of connections, after a first, that resume its session."""
        context = self._context(version)
        session = self._session(context)
        resumed = 0
        for _ in range(connections):
            with self._connect(context, session=session) as connection:
                resumed += connection.session_reused is True
        return resumed

    def _resumes(self, version: ssl.TLSVersion) -> bool:
        return self._accepts(version) and self.resumes(version, 1) == 1

    def _session(self, context: ssl.SSLContext) -> ssl.SSLSession | None:
        with self._connect(context) as connection:
            connection.settimeout(0.5)
            # Tickets of TLS 1.3 arrive after the handshake.
            with contextlib.suppress(TimeoutError):
                connection.recv(1)
            return connection.session

    def _accepts(self, version: ssl.TLSVersion) -> bool:
        try:
            with self._connect(self._context(version)) as connection:
                return connection.version() is not None
        except (ssl.SSLError, ConnectionError):
            return False

    def _ciphers(self) -> "list[str]":
        context = self._context(ssl.TLSVersion.TLSv1_2)
        offered = [item["name"] for item in context.get_ciphers() if item["protocol"] != "TLSv1.3"]
        accepted: list[str] = []
        while offered:
            context.set_ciphers(":".join(offered) + ":@SECLEVEL=0")
            try:
                with self._connect(context) as connection:
                    cipher = connection.cipher()
            except (ssl.SSLError, ConnectionError):
                break
            assert cipher is not None
            accepted.append(cipher[0])
            offered.remove(cipher[0])
        return accepted

    def _renegotiates(self) -> bool:
        with self._connect(self._context(ssl.TLSVersion.TLSv1_2)) as connection:
            return renegotiates(connection)

    def _context(self, version: ssl.TLSVersion | None = None, alpn: str = "") -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_ciphers(_ALL_CIPHERS)
        if version is not None:
            with warnings.catch_warnings():
                # Python deprecates the versions that must be refused.
                warnings.simplefilter("ignore", DeprecationWarning)
                context.minimum_version = context.maximum_version = version
        if alpn:
            context.set_alpn_protocols([alpn])
        if self._certificate is not None:
            context.load_cert_chain(*self._certificate)
        return context

    def _connect(
        self, context: ssl.SSLContext, name: str | None = None, session: ssl.SSLSession | None = None
    ) -> ssl.SSLSocket:
        connection = socket.create_connection(self._address, _TIMEOUT)
        try:
            return context.wrap_socket(connection, server_hostname=name, session=session)
        except BaseException:
            connection.close()
            raise


def renegotiates(connection: ssl.SSLSocket) -> bool:
    """Ask for a renegotiation of a TLS 1.2 connection; return whether the server agrees."""
    import _ssl

    library = ctypes.PyDLL(_ssl.__file__)
    library.SSL_renegotiate.argtypes = library.SSL_do_handshake.argtypes = (ctypes.c_void_p,)
    # PySSLSocket of Modules/_ssl.c: the head, the socket, and OpenSSL's connection.
    inner = connection._sslobj  # type: ignore[attr-defined]
    pointer = ctypes.c_void_p.from_address(id(inner) + object.__basicsize__ + ctypes.sizeof(ctypes.c_void_p)).value
    if library.SSL_renegotiate(pointer) != 1:
        return False
    try:
        connection.do_handshake()
        # The server's refusal is an alert, or the end of the connection.
        connection.settimeout(0.5)
        return connection.recv(1) != b""
    except TimeoutError:
        return True
    except (ssl.SSLError, ConnectionError):
        return False


def _common_name(connection: ssl.SSLSocket) -> str:
    encoded = connection.getpeercert(binary_form=True)
    assert encoded is not None
    return x509.load_der_x509_certificate(encoded).subject.rfc4514_string()


def main(arguments: Sequence[str]) -> None:
    """Print the report of a server."""
    host, _, port = arguments[0].rpartition(":")
    report = Scanner(host.strip("[]"), int(port)).scan(arguments[1:])
    for name, value in (*vars(report).items(), ("weak_ciphers", report.weak_ciphers)):
        sys.stdout.write(f"{name}: {value}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
