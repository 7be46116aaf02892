"""Settings of the limits on clients' connections (table `limits`)."""

from pydantic import Field

from proxy.settings.field_types import SettingsTable


class LimitSettings(SettingsTable):
    """Limits that keep one client from degrading the service for others."""

    negotiation_timeout: float = Field(
        10.0, gt=0, description="timeout of protocol detection and the TLS handshake in seconds"
    )
    negotiations: int = Field(
        4096,
        gt=0,
        description="connections per listener in protocol detection or TLS handshake; above it, the oldest is closed",
    )
    handshakes: int = Field(
        256,
        gt=0,
        description="concurrent TLS handshakes per listener, at most a quarter of them from one address; "
        "further handshakes wait",
    )
    idle_timeout: float = Field(
        120.0, gt=0, description="seconds without received bytes after which a connection is closed"
    )
    dead_peer_timeout: int = Field(
        12,
        ge=0,
        le=3600,
        description="seconds after which a TCP connection is closed whose host does not answer any more, by keepalive"
        " probes and TCP_USER_TIMEOUT. On Linux also that of a client that reads nothing for so long while responses"
        " wait: raise it above the pauses of clients. 0: as the system says",
    )
    frame_timeout: float = Field(
        30.0,
        gt=0,
        description="seconds in which an unfinished remoting frame must be completed, or grow by 16 KiB a second,"
        " before its connection is closed",
    )
    requests: int = Field(64, gt=0, description="in-flight requests per connection before reads pause")
    waiting: int = Field(
        4096,
        gt=0,
        description="in-flight long polls per connection before reads pause; after 5 to 10 s, they are answered"
        " with 'no message found'",
    )
    request_bytes: int = Field(
        32 * 2**20, gt=0, description="memory of in-flight requests per connection in bytes before reads pause"
    )
    buffer: int = Field(2**20, gt=0, description="unsent responses per connection in bytes before reads pause")
    unread: int = Field(
        8 * 2**20,
        gt=0,
        description="unsent responses per connection in bytes above which it gets no more messages: pulls are answered"
        " with the request to pull again, popped messages are released",
    )
    unread_timeout: float = Field(
        60.0,
        gt=0,
        description="seconds in which a remoting client with more unsent responses than `buffer` must read 16 KiB a"
        " second, before its connection is closed; on Linux, `dead_peer_timeout` closes a client that reads nothing"
        " at all",
    )
    hard_buffer: int = Field(
        32 * 2**20, gt=0, description="unsent responses in bytes at which the connection is closed"
    )
    frame: int = Field(16 * 2**20, ge=4096, le=2**24, description="maximum remoting frame size in bytes")
    memory: int | None = Field(
        None,
        ge=128 * 2**20,
        description="memory of the process in bytes, for all workers together: at 75 % of it reads pause and freed"
        " memory is returned, at 87.5 % load is shed; default: 80 % of the container's limit (control group), or of the"
        " physical memory",
    )
    total_bytes: int | None = Field(
        None,
        gt=0,
        description="memory of in-flight requests of all connections in bytes before SYSTEM_BUSY is returned; default:"
        " a quarter of `memory`",
    )
    unfinished_bytes: int | None = Field(
        None,
        gt=0,
        description="bytes of requests of all connections that have not arrived in full, above which the connections"
        " with the most and oldest are closed; default: a quarter of `memory`",
    )
    broker_window: int = Field(
        16,
        ge=0,
        description="requests of one source address in flight at one broker while others use it; further ones wait."
        " More if the broker's replies take long even without a queue; 0: no limit",
    )
    broker_polls: int = Field(
        64,
        ge=0,
        description="long polls of all clients at one broker that it may be answering at once; further ones wait for"
        " their turn. A poll that the broker has parked does not count; 0: no limit",
    )
