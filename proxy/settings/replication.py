"""Settings of replication between replicas (table `sync`)."""

from pydantic import Field

from proxy.settings.field_types import SettingsTable
from remoting.names import MEMBER_SYNC_TOPIC, RENEWAL_SYNC_TOPIC


class SyncSettings(SettingsTable):
    """State that replicas share through topics; group members also with the official Java proxies."""

    enabled: bool = Field(True, description="share group members with Java proxies, and renewals among replicas")
    topic: str = Field(
        MEMBER_SYNC_TOPIC,
        min_length=1,
        description="topic for group members, heartbeatSyncerTopicName of the Java proxies",
    )
    renewals: str = Field(RENEWAL_SYNC_TOPIC, min_length=1, description="topic for renewals of invisible durations")

    @property
    def topics(self) -> frozenset[str]:
        """The topics by which replicas share state."""
        return frozenset((self.topic, self.renewals))
