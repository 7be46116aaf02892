"""Settings of TLS on the clients' listeners (table `tls`) and towards the cluster (table `cluster_tls`)."""

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import NoDecode

from protocol_negotiation.self_signed import SelfSigned
from protocol_negotiation.tls import (
    DEFAULT_CIPHERS,
    ClientAuth,
    KeyPair,
    MinimumVersion,
    SessionTickets,
    TlsFiles,
    TlsMode,
    TlsOptions,
)
from protocol_negotiation.tls_client import ClientTlsFiles, Verification
from proxy.settings.field_types import SettingsTable, split_list

Names = Annotated[list[str], BeforeValidator(split_list(";,:")), NoDecode]


class CertificateSettings(SettingsTable):
    """A certificate for some of the server names that clients request (SNI)."""

    certificate: Path = Field(description="PEM file with the certificate chain")
    key: Path = Field(description="PEM file with the private key; an encrypted one has tls.key_password")
    names: Names = Field(
        [], description="server names, `*.` for any first label; default: the DNS names in the certificate"
    )


class TlsSettings(SettingsTable):
    """TLS on the listeners."""

    mode: TlsMode = Field(
        TlsMode.PERMISSIVE, description="disabled, permissive (TLS and plain text) or enforcing (TLS only)"
    )
    certificate: Path | None = Field(None, description="PEM file with the certificate chain")
    key: Path | None = Field(None, description="PEM file with the private key")
    key_password: str | None = Field(None, repr=False, description="password of the key file")
    self_signed: bool = Field(
        True,
        description="without `certificate`, make one at each start, for clients that use TLS and verify no certificate",
    )
    certificates: list[CertificateSettings] = Field(
        [], description="certificates for further server names; clients that request none of them get `certificate`"
    )
    client_ca: Path | None = Field(None, description="PEM file with the CAs that verify client certificates")
    client_auth: ClientAuth = Field(
        ClientAuth.NONE, description="client certificates: none, optional or required (which needs mode enforcing)"
    )
    crl: Path | None = Field(
        None, description="PEM file with the revocation lists of the CAs that issue client certificates"
    )
    crl_chain: bool = Field(
        False,
        description="require the revocation list of each CA of a chain, not only of a client certificate's issuer",
    )
    minimum_version: MinimumVersion = Field(MinimumVersion.TLS_1_2, description="earliest version: 1.2 or 1.3")
    ciphers: str = Field(
        DEFAULT_CIPHERS, description="ciphers of TLS 1.2 as an OpenSSL cipher list; those of TLS 1.3 are fixed"
    )
    curves: Names = Field(
        [], description="curves of key exchanges in order of preference, e.g. X25519:P-256; default: OpenSSL's"
    )
    session_tickets: SessionTickets = Field(
        SessionTickets.SHARED,
        description="session resumption: shared (by all workers), separate (each worker has its own keys) or off",
    )
    reload_interval: float = Field(10.0, gt=0, description="seconds between checks of the files for changes")

    @model_validator(mode="after")
    def _check_complete(self) -> "TlsSettings":
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together: set both or neither")
        if self.mode is TlsMode.ENFORCING and self.certificate is None:
            raise ValueError("mode is enforcing, but there is no certificate")
        if self.certificates and self.certificate is None:
            raise ValueError("certificates needs certificate and key, for clients that request other server names")
        if self.client_ca is not None and self.certificate is None:
            raise ValueError("client_ca needs certificate and key")
        if self.client_auth is not ClientAuth.NONE and self.client_ca is None:
            raise ValueError("client_auth needs client_ca")
        if self.crl is not None and self.client_ca is None:
            raise ValueError("crl needs client_ca")
        if self.client_auth is ClientAuth.REQUIRED and self.mode is not TlsMode.ENFORCING:
            raise ValueError(
                f"tls.client_auth is required, but tls.mode {self.mode} accepts clients without TLS and thus without a "
                'certificate: set tls.mode = "enforcing", or tls.client_auth = "optional"'
            )
        return self

    @property
    def authenticates(self) -> bool:
        """Whether every client has to present a certificate."""
        return self.client_auth is ClientAuth.REQUIRED and self.mode is TlsMode.ENFORCING

    @property
    def files(self) -> TlsFiles | None:
        """The files as an option of the negotiation layer; None without any, or without TLS."""
        if self.certificate is None or self.key is None or self.mode is TlsMode.DISABLED:
            return None
        return TlsFiles(
            self.certificate,
            self.key,
            self.key_password,
            self.client_ca,
            self.client_auth,
            tuple(KeyPair(item.certificate, item.key, tuple(item.names)) for item in self.certificates),
            self.crl,
            self.crl_chain,
            self._options,
        )

    @property
    def self_signed_certificate(self) -> SelfSigned | None:
        """The certificate that is made at start; None if there are files, or no TLS."""
        if not self.self_signed or self.certificate is not None or self.mode is TlsMode.DISABLED:
            return None
        return SelfSigned(self._options)

    @property
    def _options(self) -> TlsOptions:
        return TlsOptions(self.minimum_version, self.ciphers, tuple(self.curves), self.session_tickets)


class ClusterTlsSettings(SettingsTable):
    """TLS on connections to name servers and brokers."""

    enabled: bool = Field(False, description="connect to name servers and brokers with TLS")
    ca: Path | None = Field(None, description="PEM file with the CAs of the servers; default: the system's")
    verify: Verification = Field(
        Verification.FULL,
        description="full (certificate and name), certificate (any name) or insecure (no verification: an attacker on "
        "the network can read and change messages)",
    )
    server_name: str | None = Field(
        None, description="name that is sent (SNI) and verified; default: the host in the server's address"
    )
    certificate: Path | None = Field(None, description="PEM file with the client certificate; default: none")
    key: Path | None = Field(None, description="PEM file with its private key")
    key_password: str | None = Field(None, repr=False, description="password of the key file")
    crl: Path | None = Field(None, description="PEM file with the revocation lists of the servers' CAs")
    minimum_version: MinimumVersion = Field(MinimumVersion.TLS_1_2, description="earliest version: 1.2 or 1.3")

    @model_validator(mode="after")
    def _check_complete(self) -> "ClusterTlsSettings":
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together: set both or neither")
        if self.verify is Verification.INSECURE and (self.ca is not None or self.crl is not None):
            raise ValueError("verify is insecure, which ignores ca and crl: remove them, or set verify")
        return self

    @property
    def unused(self) -> list[str]:
        """The keys that have no effect, because TLS is not enabled."""
        keys = ("ca", "server_name", "certificate", "crl")
        return [] if self.enabled else [key for key in keys if getattr(self, key) is not None]

    @property
    def files(self) -> ClientTlsFiles | None:
        """The files as an option of the negotiation layer; None without TLS."""
        if not self.enabled:
            return None
        return ClientTlsFiles(
            self.ca,
            self.certificate,
            self.key,
            self.key_password,
            self.crl,
            self.verify,
            self.server_name,
            self.minimum_version,
        )
