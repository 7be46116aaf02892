"""Settings of TLS on the clients' listeners (table `tls`)."""

from pathlib import Path

from pydantic import Field, model_validator

from protocol_negotiation.tls import ClientAuth, TlsFiles, TlsMode
from proxy.settings.field_types import SettingsTable


class TlsSettings(SettingsTable):
    """TLS on the listeners."""

    mode: TlsMode = Field(
        TlsMode.PERMISSIVE, description="disabled, permissive (TLS and plain text) or enforcing (TLS only)"
    )
    certificate: Path | None = Field(None, description="PEM file with the certificate chain; default: no TLS")
    key: Path | None = Field(None, description="PEM file with the private key")
    key_password: str | None = Field(None, repr=False, description="password of the key file")
    client_ca: Path | None = Field(None, description="PEM file with the CAs that verify client certificates")
    client_auth: ClientAuth = Field(ClientAuth.NONE, description="client certificates: none, optional or required")
    reload_interval: float = Field(10.0, gt=0, description="seconds between checks of the files for changes")

    @model_validator(mode="after")
    def _check_complete(self) -> "TlsSettings":
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together: set both or neither")
        if self.mode is TlsMode.ENFORCING and self.certificate is None:
            raise ValueError("mode is enforcing, but there is no certificate")
        if self.client_auth is not ClientAuth.NONE and self.client_ca is None:
            raise ValueError("client_auth needs client_ca")
        return self

    @property
    def files(self) -> TlsFiles | None:
        """The files as an option of the negotiation layer; None without TLS."""
        if self.certificate is None or self.key is None or self.mode is TlsMode.DISABLED:
            return None
        return TlsFiles(self.certificate, self.key, self.key_password, self.client_ca, self.client_auth)
