"""Settings of the embedded broker (table `embedded`)."""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from proxy.settings.field_types import FixedPortAddress, IpAddress, SettingsTable
from proxy.settings.secret_files import read_secret
from remoting.signature import Credentials

# Clients keep state for each queue of a topic.
_MAX_QUEUES = 1024


class EmbeddedSettings(SettingsTable):
    """The embedded broker. Defaults are RocketMQ's where it has the option."""

    directory: Path | None = Field(None, description="data directory; default: no embedded broker")
    listen: FixedPortAddress | None = Field(
        None,
        description="host:port of a combined name server and broker, for tools, other replicas and clients without "
        "the proxy, under the same limits and rules; default: none",
    )
    advertise: IpAddress | None = Field(
        None, description="ip:port in that name server's routes and in message ids; default: the address of `listen`"
    )
    name: str = Field("broker-a", pattern=r"^[A-Za-z0-9_.-]+$", description="broker name")
    cluster: str = Field("DefaultCluster", pattern=r"^[A-Za-z0-9_.-]+$", description="cluster name")
    sync: Literal["always", "interval", "os"] = Field(
        "always",
        description="when messages are synced to disk: always (before a send is acknowledged), "
        "interval (every sync_interval), or os (left to the operating system)",
    )
    sync_interval: float = Field(1.0, ge=1, description="seconds between syncs if sync is interval")
    segment_size: int = Field(256 * 2**20, ge=2**20, le=2**31, description="size of a log segment file in bytes")
    reserve: int = Field(
        16 * 2**20, ge=0, description="bytes of disk reserved for acknowledgements and offsets when the disk is full"
    )
    retention_size: int | None = Field(
        None, ge=2**20, description="log size in bytes above which the oldest messages are deleted; default: no limit"
    )
    retention_time: float = Field(
        259_200.0, ge=0, description="age in seconds at which messages are deleted; 0: no limit"
    )
    rebuild: bool = Field(
        False, description="start without topics, groups and offsets if the index file with them is lost"
    )
    auto_create_topics: bool = Field(
        True, description="create a topic on the first message that a remoting client sends to it"
    )
    auto_create_groups: bool = Field(True, description="create a consumer group with its first consumer")
    max_topics: int = Field(
        10_000, ge=1, description="number of topics at which none are created automatically any more"
    )
    max_groups: int = Field(
        10_000, ge=1, description="number of consumer groups at which none are created automatically any more"
    )
    max_offsets: int = Field(
        500_000,
        ge=1,
        description="number of offsets, one of each consumer group in each queue, at which no group begins to consume "
        "a topic any more",
    )
    creations_per_client: int = Field(
        100, ge=1, description="topics and groups created automatically for one client within a minute"
    )
    creations_per_address: int = Field(
        1_000, ge=1, description="topics and groups created automatically for one source address within a minute"
    )
    queues: int = Field(8, ge=1, le=_MAX_QUEUES, description="queues of an automatically created topic")
    max_message: int = Field(4 * 2**20, ge=1024, le=2**23, description="maximum message size in bytes")
    max_delay: float = Field(
        259_200.0, gt=0, description="maximum delivery delay in seconds; never longer than `retention_time`"
    )
    transaction_timeout: float = Field(
        6.0, gt=0, description="age in seconds at which an open transaction is first checked"
    )
    transaction_interval: float = Field(30.0, gt=0, description="seconds between checks of an open transaction")
    transaction_checks: int = Field(15, ge=1, description="maximum number of checks of an open transaction")
    super_user: str | None = Field(
        None, min_length=1, description="user that may do everything, created at the start if it does not exist"
    )
    super_secret: str | None = Field(None, min_length=1, repr=False, description="secret of a new super_user")
    super_secret_file: Path | None = Field(None, description="file with that secret; replaces super_secret")

    @model_validator(mode="after")
    def _check_super_user(self) -> "EmbeddedSettings":
        if (self.super_user is None) != (self.super_secret is None and self.super_secret_file is None):
            raise ValueError("super_user needs super_secret or super_secret_file, and they need super_user")
        return self

    @property
    def super_credentials(self) -> Credentials | None:
        """The first user with its secret; None without. Raises ValueError if the file cannot be used."""
        if self.super_user is None:
            return None
        return Credentials(self.super_user, read_secret(self.super_secret, self.super_secret_file, "super_secret_file"))
