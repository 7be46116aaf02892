"""The request table with what came of it: request codes of remoting clients, rpcs of gRPC clients."""

from typing import Literal

from pydantic import Field

from proxy.observability.metrics.request_counts import CodeTotals
from proxy.operations.replica import Replica
from proxy.operations.values import Answer
from remoting.requests import REQUESTS

_NOTHING = CodeTotals()


class Request(Answer):
    """A request code, or an rpc."""

    protocol: Literal["remoting", "grpc"]
    name: str = Field(examples=["SEND_MESSAGE_V2"])
    code: int | None = Field(description="null: an rpc, or codes that are not in the table", examples=[310])
    action: str | None = Field(description="in the words of RocketMQ's ACL 2.0", examples=["Pub"])
    sender: str | None = Field(description="client, broker, or both", examples=["client"])
    rip55: bool | None = Field(description="whether it is one of RIP-55's 27")
    answered: int
    failed: int = Field(description="of these, by an error; that nothing was found is none")
    average_milliseconds: float | None = Field(examples=[1.9])


def requests(replica: Replica) -> list[Request]:
    """Every row of the request table, and what else has been asked."""
    sums = replica.metrics.requests.codes()
    rows = []
    for spec in sorted(REQUESTS.values(), key=lambda spec: spec.code):
        answered = sums.pop(("remoting", spec.name), _NOTHING)
        rows.append(
            Request(
                protocol="remoting",
                name=spec.name,
                code=int(spec.code),
                action=str(spec.action),
                sender=str(spec.direction),
                rip55=spec.rip55,
                **_counts(answered),
            )
        )
    for (protocol, name), answered in sorted(sums.items(), key=lambda item: item[0]):
        rows.append(
            Request(
                protocol="grpc" if protocol == "grpc" else "remoting",
                name=name,
                code=None,
                action=None,
                sender=None,
                rip55=None,
                **_counts(answered),
            )
        )
    return rows


def _counts(of: CodeTotals) -> dict[str, int | float | None]:
    average = round(of.seconds / of.answered * 1000, 3) if of.answered else None
    return {"answered": of.answered, "failed": of.failed, "average_milliseconds": average}
