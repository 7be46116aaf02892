"""The request table with counts: request codes of remoting clients, rpcs of gRPC clients."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from proxy.observability.metrics.request_counts import CodeTotals
from proxy.operations.operation import operation
from proxy.operations.services import AdminServices
from proxy.operations.snapshots import Entries
from proxy.operations.values import Answer, ItemList, Mergeable, Rules, total
from remoting.requests import REQUESTS

_NO_REQUESTS = CodeTotals()


class RequestCounts(Answer):
    """A request code, or an rpc, with its counts."""

    protocol: Literal["remoting", "grpc"]
    name: str = Field(examples=["SEND_MESSAGE_V2"])
    code: int | None = Field(description="null: an rpc, or all codes that are not in the table", examples=[310])
    action: str | None = Field(description="the action in RocketMQ's ACL 2.0", examples=["Pub"])
    sender: str | None = Field(description="client, broker, or both", examples=["client"])
    rip55: bool | None = Field(description="whether it is one of RIP-55's 27")
    answered: int
    failed: int = Field(description="responses with an error; an empty result is not an error")


class Request(RequestCounts):
    """A request code, or an rpc."""

    average_milliseconds: float | None = Field(examples=[1.9])


class RequestEntry(RequestCounts, Mergeable):
    """A request code, or an rpc, with the sum of its durations."""

    MERGE_KEY = ("protocol", "name", "code")
    MERGE_RULES: ClassVar[Rules] = {"answered": total, "failed": total, "seconds": total}

    seconds: float

    @property
    def request(self) -> Request:
        """The row of the table."""
        average = round(self.seconds / self.answered * 1000, 3) if self.answered else None
        counts = self.model_dump(include=set(RequestCounts.model_fields))
        return Request(**counts, average_milliseconds=average)


@operation("requests.list")
async def list_requests(services: AdminServices, _: None) -> Entries[RequestEntry]:
    """Return every row of the request table, and all other requests that were received."""
    sums = services.replica.metrics.requests.codes()
    rows = []
    for spec in sorted(REQUESTS.values(), key=lambda spec: spec.code):
        counts = sums.pop(("remoting", spec.name), _NO_REQUESTS)
        known = {"code": spec.code, "action": str(spec.action), "sender": str(spec.direction), "rip55": spec.rip55}
        rows.append(_entry("remoting", spec.name, counts, known))
    for (protocol, name), counts in sums.items():
        rows.append(_entry("grpc" if protocol == "grpc" else "remoting", name, counts, _UNKNOWN))
    return Entries(services.workers.number, rows)


_UNKNOWN = dict.fromkeys(("code", "action", "sender", "rip55"))


def _entry(
    protocol: Literal["remoting", "grpc"], name: str, counts: CodeTotals, spec: Mapping[str, Any]
) -> RequestEntry:
    return RequestEntry(
        protocol=protocol,
        name=name,
        **spec,
        answered=counts.answered,
        failed=counts.failed,
        seconds=counts.seconds,
    )


def request_table(entries: Sequence[RequestEntry]) -> ItemList[Request]:
    """Return the table: request codes in their order, then the others by name."""
    known = sorted((entry for entry in entries if entry.code is not None), key=lambda entry: entry.code or 0)
    others = sorted((entry for entry in entries if entry.code is None), key=lambda entry: (entry.protocol, entry.name))
    return ItemList(items=[entry.request for entry in (*known, *others)])
