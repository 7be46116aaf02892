"""The settings of the admin API."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_settings import NoDecode

from protocol_negotiation.peer import HostPort
from protocol_negotiation.tls import ClientAuth, TlsFiles

OFF = "off"
DEFAULT_LISTEN = "127.0.0.1:8090"
_SHORTEST_TOKEN = 16

# What a caller may do; each includes the former.
Permission = Literal["none", "read", "write"]


def _split(value: object) -> object:
    """Lists may be written as one text, separated by `;`: distinguished names contain commas."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(";") if part.strip()]
    return value


def _listen(text: str) -> str:
    if text != OFF and HostPort.parse(text).is_unix:
        raise ValueError(f"needs host:port, or {OFF}: {text!r}")
    return text


def _token(text: str) -> str:
    if len(text) < _SHORTEST_TOKEN or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError(f"a token has at least {_SHORTEST_TOKEN} printable ASCII characters and no blanks")
    return text


Token = Annotated[str, AfterValidator(_token)]
Texts = Annotated[list[str], BeforeValidator(_split), NoDecode]


class AdminSettings(BaseModel):
    """The HTTP API for operators. Whoever may write may also read; health is told to everybody."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    listen: Annotated[str, AfterValidator(_listen)] = Field(
        DEFAULT_LISTEN, description="host:port of the admin API; off: there is none"
    )
    grpc: Annotated[str, AfterValidator(_listen)] = Field(
        OFF, description="host:port of the Admin gRPC service, which RocketMQ's dashboard calls; off: there is none"
    )
    local: Permission = Field("read", description="what callers on this host may do without a token: none, read, write")
    remote: Permission = Field("none", description="the same for callers elsewhere")
    read_token: Token | None = Field(None, repr=False, description="bearer token of those who may read")
    write_token: Token | None = Field(None, repr=False, description="bearer token of those who may also write")
    tokens: Path | None = Field(
        None, description="file with more of them, a line each: read or write, a name, the token; read when it changes"
    )
    hosts: Texts = Field([], description="names by which it is called, besides addresses, localhost and the host name")
    certificate: Path | None = Field(
        None, description="PEM file with the certificate chain; without it there is no TLS"
    )
    key: Path | None = Field(None, description="PEM file with the private key")
    key_password: str | None = Field(None, repr=False, description="password of the key file")
    client_ca: Path | None = Field(None, description="PEM file of CAs that client certificates are checked against")
    readers: Texts = Field([], description="subjects (RFC 4514) of client certificates that may read; *: every one")
    writers: Texts = Field([], description="the same for those that may also write")
    max_connections: int = Field(256, gt=0, description="further connections are closed at once")
    max_body: int = Field(64 * 2**10, ge=1024, description="largest request body in bytes")
    timeout: float = Field(10.0, gt=0, description="seconds that a caller has to send a request")
    streams: int = Field(8, ge=0, description="live streams of requests at a time")
    kept: int = Field(500, gt=0, description="closed connections, protocol errors and writes that are remembered, each")

    @model_validator(mode="after")
    def _complete(self) -> "AdminSettings":
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together: set both or neither")
        if self.client_ca is not None and self.certificate is None:
            raise ValueError("client_ca needs certificate and key")
        if (self.readers or self.writers) and self.client_ca is None:
            raise ValueError("readers and writers need client_ca")
        return self

    @property
    def address(self) -> HostPort | None:
        """Where to listen; None: nowhere."""
        return None if self.listen == OFF else HostPort.parse(self.listen)

    @property
    def grpc_address(self) -> HostPort | None:
        """Where to serve the Admin gRPC service; None: nowhere."""
        return None if self.grpc == OFF else HostPort.parse(self.grpc)

    @property
    def chosen(self) -> bool:
        """Whether somebody has said where to listen: then it has to be possible."""
        return self.listen != DEFAULT_LISTEN

    @property
    def files(self) -> TlsFiles | None:
        """As TLS takes them; None without."""
        if self.certificate is None or self.key is None:
            return None
        wanted = ClientAuth.NONE if self.client_ca is None else ClientAuth.OPTIONAL
        return TlsFiles(self.certificate, self.key, self.key_password, self.client_ca, wanted)
