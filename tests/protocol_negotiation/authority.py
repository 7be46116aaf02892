"""A certificate authority for tests."""

import ssl
from pathlib import Path

import trustme

from protocol_negotiation.tls import ClientAuth, TlsFiles


class Authority:
    """A certificate authority that writes its files to a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = trustme.CA()
        self.ca_file = folder / "ca.pem"
        self.ca.cert_pem.write_to_path(str(self.ca_file))

    def files(self, name: str = "server", client_auth: ClientAuth = ClientAuth.NONE) -> TlsFiles:
        """Issue a certificate for rocketmq.test and write it to ``<name>.pem`` and ``<name>.key``."""
        issued = self.ca.issue_cert("rocketmq.test")
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        key.write_bytes(issued.private_key_pem.bytes())
        key.chmod(0o600)
        client_ca = self.ca_file if client_auth is not ClientAuth.NONE else None
        return TlsFiles(certificate, key, None, client_ca, client_auth)

    def client_context(self, *alpn: str, certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca_file)
        if alpn:
            context.set_alpn_protocols(list(alpn))
        if certificate is not None:
            certificate.configure_cert(context)
        return context
