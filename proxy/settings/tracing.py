"""The settings of traces."""

from importlib.util import find_spec

from pydantic import BaseModel, ConfigDict, Field, field_validator


class TraceSettings(BaseModel):
    """Traces by OpenTelemetry."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    endpoint: str | None = Field(
        None,
        pattern=r"^https?://",
        repr=False,
        description="URL of an OTLP/HTTP collector (…/v1/traces); none: no traces",
    )
    share: float = Field(
        0.01, ge=0, le=1, description="share of requests without a context of their own that is sampled"
    )
    service: str = Field("gantry", min_length=1, description="the service's name in traces")

    @field_validator("endpoint")
    @classmethod
    def _installed(cls, endpoint: str | None) -> str | None:
        if endpoint is not None and find_spec("opentelemetry.exporter") is None:
            raise ValueError("needs OpenTelemetry: pip install 'rocketmq-gantry[tracing]'")
        return endpoint
