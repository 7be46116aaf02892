"""The request table with what came of it: request codes of remoting clients, rpcs of gRPC clients."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from proxy.admin.answers import Answer
from proxy.admin.tally import CodeTally
from remoting.requests import REQUESTS

if TYPE_CHECKING:
    from proxy.app import App

_NOTHING = CodeTally()


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


def requests(app: "App") -> list[Request]:
    """Every row of the request table, and what else has been asked."""
    tallies = dict(app.admin.tally.codes)
    rows = []
    for spec in sorted(REQUESTS.values(), key=lambda spec: spec.code):
        tally = tallies.pop(("remoting", spec.name), _NOTHING)
        rows.append(
            Request(
                protocol="remoting",
                name=spec.name,
                code=int(spec.code),
                action=str(spec.action),
                sender=str(spec.direction),
                rip55=spec.rip55,
                **_counts(tally),
            )
        )
    for (protocol, name), tally in sorted(tallies.items()):
        rows.append(
            Request(
                protocol="grpc" if protocol == "grpc" else "remoting",
                name=name,
                code=None,
                action=None,
                sender=None,
                rip55=None,
                **_counts(tally),
            )
        )
    return rows


def _counts(tally: CodeTally) -> dict[str, int | float | None]:
    average = round(tally.seconds / tally.answered * 1000, 3) if tally.answered else None
    return {"answered": tally.answered, "failed": tally.failed, "average_milliseconds": average}
