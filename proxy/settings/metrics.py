"""The settings of the metrics."""

from pydantic import BaseModel, ConfigDict, Field


class MetricsSettings(BaseModel):
    """What the metrics show."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    top: int = Field(
        200, ge=0, le=10_000, description="topics with series of their own, the busiest; also groups, brokers, versions"
    )
    idle: float = Field(3_600.0, ge=60, description="seconds without traffic after which such a series is dropped")
    cluster: str = Field("DefaultCluster", description="label `cluster` of the metrics that RIP-46 names")
    stat_prefix: str = Field(
        "gantry", pattern=r"^[A-Za-z0-9_-]+$", description="prefix of the Envoy filter's statistics"
    )
