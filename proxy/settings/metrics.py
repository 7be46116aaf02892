"""Settings of the metrics (table `metrics`)."""

from pydantic import Field

from proxy.settings.field_types import SettingsTable


class MetricsSettings(SettingsTable):
    """The labels of the metrics and limits on their number."""

    top: int = Field(
        200,
        ge=0,
        le=10_000,
        description="number of the busiest topics with time series of their own; also of groups, brokers and versions",
    )
    idle: float = Field(3_600.0, ge=60, description="seconds without traffic after which such a time series is dropped")
    cluster: str = Field("DefaultCluster", description="label `cluster` of the metrics that RIP-46 names")
    stat_prefix: str = Field(
        "gantry", pattern=r"^[A-Za-z0-9_-]+$", description="prefix of the Envoy filter's statistics"
    )
