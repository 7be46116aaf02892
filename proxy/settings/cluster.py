"""Settings of the RocketMQ cluster behind the proxy (table `cluster`)."""

from pydantic import Field

from proxy.settings.field_types import RemoteAddresses, SettingsTable


class ClusterSettings(SettingsTable):
    """The RocketMQ cluster behind the proxy."""

    namesrv: RemoteAddresses = Field([], description="name servers, host:port, separated by ;")
    connections_per_broker: int = Field(2, ge=1, le=64, description="connections for requests to each broker")
    connect_timeout: float = Field(3.0, gt=0, description="timeout of a connection to a name server or broker, seconds")
    request_timeout: float = Field(
        10.0, gt=0, description="timeout of a request to a broker in seconds; long polls have their own"
    )
    route_refresh: float = Field(10.0, gt=0, description="seconds between refreshes of routes and brokers")
    route_idle: float = Field(300.0, gt=0, description="seconds without use after which a cached route is dropped")
