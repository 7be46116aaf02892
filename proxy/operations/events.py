"""Protocol errors and audited writes, the newest first."""

from dataclasses import asdict
from typing import Any

from pydantic import Field

from proxy.operations.audit import Write
from proxy.operations.event_log import Violation
from proxy.operations.operation import operation
from proxy.operations.services import AdminServices
from proxy.operations.snapshots import SortedPage, newest
from proxy.operations.values import Timestamp, WorkerOwned, at


class ProtocolError(WorkerOwned):
    """A client's violation of a protocol."""

    time: Timestamp
    where: str = Field(description="negotiation, remoting or grpc", examples=["negotiation"])
    kind: str = Field(examples=["unknown"])
    listener: str
    address: str = Field(examples=["192.0.2.7:51234"])
    via: str | None
    text: str
    first_bytes: str = Field(description="up to 16, in hex; none for gRPC connections", examples=["16 03 01"])


class AuditEntry(WorkerOwned):
    """A write request."""

    time: Timestamp
    caller: str = Field(description="the token's name, the certificate's subject, local or anonymous")
    address: str
    method: str
    path: str
    query: str
    what: Any = Field(description="the request's body, if it is short JSON")
    status: int


@operation("events.protocol_errors")
async def list_protocol_errors(services: AdminServices, limit: int) -> SortedPage[ProtocolError]:
    """Return the last protocol errors."""

    def describe(violation: Violation) -> ProtocolError:
        fields = asdict(violation)
        first, time = fields.pop("first"), at(fields.pop("at"))
        return ProtocolError(**services.placement, time=time, first_bytes=first.hex(" "), **fields)

    violations = ((violation.at, number, violation) for number, violation in services.events.violations.newest())
    return newest(services.workers.number, violations, describe, limit)


@operation("events.writes")
async def list_writes(services: AdminServices, limit: int) -> SortedPage[AuditEntry]:
    """Return the last write requests, successful or not."""

    def describe(write: Write) -> AuditEntry:
        fields = asdict(write)
        return AuditEntry(**services.placement, time=at(fields.pop("at")), **fields)

    # Numbered from the oldest, as rings do.
    writes = enumerate(reversed(services.audit.newest()))
    return newest(services.workers.number, ((write.at, number, write) for number, write in writes), describe, limit)
