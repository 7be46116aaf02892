"""Settings of OpenTelemetry traces (table `tracing`)."""

from importlib.util import find_spec

from pydantic import Field, field_validator

from proxy.settings.field_types import SettingsTable


class TraceSettings(SettingsTable):
    """OpenTelemetry traces."""

    endpoint: str | None = Field(
        None,
        pattern=r"^https?://",
        repr=False,
        description="URL of an OTLP/HTTP collector (…/v1/traces); default: no traces",
    )
    share: float = Field(0.01, ge=0, le=1, description="sampled share of requests that carry no trace context")
    service: str = Field("gantry", min_length=1, description="service name in traces")

    @field_validator("endpoint")
    @classmethod
    def _check_installed(cls, endpoint: str | None) -> str | None:
        if endpoint is not None and find_spec("opentelemetry.exporter") is None:
            raise ValueError("needs OpenTelemetry: pip install 'rocketmq-gantry[tracing]'")
        return endpoint
