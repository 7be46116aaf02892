"""Settings of the admin API (table `admin`)."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_settings import NoDecode

from protocol_negotiation.peer import HostPort
from protocol_negotiation.tls import ClientAuth, TlsFiles
from proxy.settings.field_types import SettingsTable, split_list

OFF = "off"
DEFAULT_LISTEN = "127.0.0.1:8090"
_MIN_TOKEN_LENGTH = 16

# The rights of a caller; each includes the one before it.
Permission = Literal["none", "read", "write"]


def _listen(text: str) -> str:
    if text != OFF and HostPort.parse(text).is_unix:
        raise ValueError(f"needs host:port, or {OFF}: {text!r}")
    return text


def _token(text: str) -> str:
    if len(text) < _MIN_TOKEN_LENGTH or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError(f"a token has at least {_MIN_TOKEN_LENGTH} printable ASCII characters and no blanks")
    return text


Token = Annotated[str, AfterValidator(_token)]


def _peer(text: str) -> str:
    address = HostPort.parse(text.removeprefix("https://").removeprefix("http://"))
    if address.is_unix or not address.host or not address.port:
        raise ValueError(f"needs host:port or https://host:port: {text!r}")
    return text


# Only `;` separates: distinguished names contain commas.
Texts = Annotated[list[str], BeforeValidator(split_list(";")), NoDecode]
Paths = Annotated[list[Path], BeforeValidator(split_list(";")), NoDecode]


class AdminSettings(SettingsTable):
    """The HTTP and gRPC API for operators. Permission to write includes reading; health needs no permission."""

    listen: Annotated[str, AfterValidator(_listen)] = Field(
        DEFAULT_LISTEN, description="host:port of the admin API; off: no admin API"
    )
    grpc: Annotated[str, AfterValidator(_listen)] = Field(
        OFF, description="host:port of the Admin gRPC service for RocketMQ's dashboard; off: no such service"
    )
    local: Permission = Field(
        "read", description="permission of callers on this host without a token: none, read or write"
    )
    remote: Permission = Field(
        "none", description="permission of callers on other hosts without a token: none, read or write"
    )
    read_token: Token | None = Field(None, repr=False, description="bearer token that permits reading")
    write_token: Token | None = Field(None, repr=False, description="bearer token that permits reading and writing")
    tokens: Path | None = Field(
        None, description="file with further tokens, each line `read|write NAME TOKEN`; reloaded when it changes"
    )
    peers: Annotated[list[Annotated[str, AfterValidator(_peer)]], BeforeValidator(split_list(",;")), NoDecode] = Field(
        [],
        description="admin APIs of the other replicas, each host:port or https://host:port; a name stands for all of "
        "its addresses, and this replica is recognized. Lists, the live page and `?replica=` then cover all replicas",
    )
    peer_token: Token | None = Field(
        None, repr=False, description="token with which replicas call each other, the same at all; it permits writing"
    )
    peer_ca: Path | None = Field(
        None, description="PEM file with the CAs of the peers' certificates; default: the system's"
    )
    hosts: Texts = Field(
        [], description="accepted host names of requests, in addition to IP addresses, localhost and the host name"
    )
    contents: Literal["read", "write", "off"] = Field(
        "write",
        description="permission that reading bodies, keys and properties of messages needs: read or write; "
        "off: it is not possible",
    )
    descriptors: Paths = Field(
        [], description="files with protobuf descriptor sets (protoc --include_imports), for bodies of messages"
    )
    certificate: Path | None = Field(None, description="PEM file with the certificate chain; default: no TLS")
    key: Path | None = Field(None, description="PEM file with the private key")
    key_password: str | None = Field(None, repr=False, description="password of the key file")
    client_ca: Path | None = Field(None, description="PEM file with the CAs that verify client certificates")
    crl: Path | None = Field(
        None, description="PEM file with the revocation lists of the CAs that issue client certificates"
    )
    readers: Texts = Field(
        [], description="subjects (RFC 4514) of client certificates that permit reading; *: every subject"
    )
    writers: Texts = Field(
        [], description="subjects of client certificates that permit reading and writing; *: every subject"
    )
    max_connections: int = Field(256, gt=0, description="open connections; further connections are closed")
    max_body: int = Field(64 * 2**10, ge=1024, description="maximum request body size in bytes")
    timeout: float = Field(10.0, gt=0, description="timeout for receiving a request in seconds")
    survey_interval: float = Field(
        30.0,
        ge=0,
        description="seconds between surveys of all consumer groups at the brokers, for lag in metrics and lists; "
        "0: only when the API asks",
    )
    survey_groups: int = Field(
        5000,
        gt=0,
        description="consumer groups of one survey, the first by name; of others, lists have only the name",
    )
    streams: int = Field(8, ge=0, description="concurrent live streams of requests")
    kept: int = Field(
        500, gt=0, description="recent closed connections, protocol errors and write operations kept, of each kind"
    )

    # `listen` before `of_worker`; empty: unchanged.
    _configured: str = ""

    @model_validator(mode="after")
    def _check_complete(self) -> "AdminSettings":
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together: set both or neither")
        if self.client_ca is not None and self.certificate is None:
            raise ValueError("client_ca needs certificate and key")
        if self.crl is not None and self.client_ca is None:
            raise ValueError("crl needs client_ca")
        if (self.readers or self.writers) and self.client_ca is None:
            raise ValueError("readers and writers need client_ca")
        if self.peers and self.peer_token is None:
            raise ValueError("peers needs peer_token")
        return self

    @property
    def address(self) -> HostPort | None:
        """The address of the admin API; None if it is off."""
        return None if self.listen == OFF else HostPort.parse(self.listen)

    @property
    def grpc_address(self) -> HostPort | None:
        """The address of the Admin gRPC service; None if it is off."""
        return None if self.grpc == OFF else HostPort.parse(self.grpc)

    def of_worker(self, number: int) -> "AdminSettings":
        """Return the settings of one of several workers: the ports plus its number."""
        ports = {"listen": self.address, "grpc": self.grpc_address}
        addresses = {name: str(HostPort(it.host, it.port + number)) for name, it in ports.items() if it and it.port}
        copy = self.model_copy(update=addresses)
        copy._configured = self.configured
        return copy

    @property
    def configured(self) -> str:
        """`listen` as configured, the same at all workers of a replica."""
        return self._configured or self.listen

    @property
    def chosen(self) -> bool:
        """Whether the configured address is not the default: then a failure to listen is an error."""
        return self.configured != DEFAULT_LISTEN

    @property
    def files(self) -> TlsFiles | None:
        """The TLS files; None without TLS."""
        if self.certificate is None or self.key is None:
            return None
        client_auth = ClientAuth.NONE if self.client_ca is None else ClientAuth.OPTIONAL
        return TlsFiles(self.certificate, self.key, self.key_password, self.client_ca, client_auth, crl=self.crl)
