"""Settings of the RocketMQ cluster behind the proxy (table `cluster`)."""

from enum import StrEnum
from pathlib import Path

from pydantic import Field, model_validator

from proxy.settings.field_types import RemoteAddresses, SettingsTable
from proxy.settings.secret_files import read_secret
from remoting.signature import Credentials


class ClientSignatures(StrEnum):
    """The judge of the requests that remoting clients have signed, and their signature towards the brokers."""

    PASS = "pass"  # noqa: S105  # a mode
    CHECK = "check"
    BOTH = "both"


class ClusterSettings(SettingsTable):
    """The RocketMQ cluster behind the proxy."""

    namesrv: RemoteAddresses = Field([], description="name servers, host:port, separated by ;")
    connections_per_broker: int = Field(2, ge=1, le=64, description="connections for requests to each broker")
    membership_connections: int = Field(
        20_000,
        ge=1,
        description="connections to brokers for memberships in groups, at most half of them for the clients of one "
        "source address: each member of a group has one to each broker; further members are refused",
    )
    connect_timeout: float = Field(3.0, gt=0, description="timeout of a connection to a name server or broker, seconds")
    request_timeout: float = Field(
        10.0, gt=0, description="timeout of a request to a broker in seconds; long polls have their own"
    )
    route_refresh: float = Field(10.0, gt=0, description="seconds between refreshes of routes and brokers")
    access_key: str | None = Field(
        None, min_length=1, description="user of Gantry's own requests to brokers; default: they are not signed"
    )
    secret_key: str | None = Field(None, min_length=1, repr=False, description="secret of access_key")
    secret_key_file: Path | None = Field(None, description="file with the secret of access_key; replaces secret_key")
    client_signatures: ClientSignatures = Field(
        ClientSignatures.BOTH,
        description="requests that remoting clients have signed: pass (brokers judge them, and Gantry only those of "
        "tools), check (Gantry judges them, and replaces the signature by its own, or removes it without access_key), "
        "both (Gantry judges them, and their signatures go to the brokers where nothing is changed)",
    )
    creations_per_client: int = Field(
        100,
        ge=1,
        description="topics and consumer groups that requests of one client use for the first time within a minute; "
        "beyond, only existing ones are served",
    )
    creations_per_address: int = Field(
        1_000, ge=1, description="the same for the clients of one source address together"
    )
    creations_per_day: int = Field(
        100_000, ge=1, description="the same for all clients of the process together, within a day"
    )
    route_idle: float = Field(300.0, gt=0, description="seconds without use after which a cached route is dropped")

    @model_validator(mode="after")
    def _check_credentials(self) -> "ClusterSettings":
        if (self.access_key is None) != (self.secret_key is None and self.secret_key_file is None):
            raise ValueError("access_key needs secret_key or secret_key_file, and they need access_key")
        return self

    @property
    def credentials(self) -> Credentials | None:
        """Gantry's credentials towards brokers; None without. Raises ValueError if the file cannot be used."""
        if self.access_key is None:
            return None
        return Credentials(self.access_key, read_secret(self.secret_key, self.secret_key_file, "secret_key_file"))
