"""The request table as a page, from `remoting/requests.py` and the embedded broker's dispatch table."""

from collections.abc import Iterable

from docs.generate import markdown
from docs.generate.markdown import code, codes, table
from proxy.embedded.broker.dispatch import BROKER, NAME_SERVER
from remoting.requests import REQUESTS, Direction, RequestSpec

_INTRODUCTION = """
The remoting requests that Gantry serves, one row of `remoting/requests.py` each. A request code that is not in the
table gets response code 3, REQUEST_CODE_NOT_SUPPORTED. A gRPC call becomes one of these requests.

- **Action**: the verb of RocketMQ's ACL 2.0, which [traffic rules](../traffic-rules.md) match.
- **Topic, group, broker**: the ext fields that hold these names.
- **Required**: the ext fields without which a request is refused. SEND_MESSAGE_V2 and its relatives have one-letter
  field names.
- **Served by**: `master`, the broker name's master; `any`, also a slave when the master is gone or has redirected the
  client there; `acting master`, the master or a slave that acts as master.
- **Repeatable**: the request is sent again when a connection is lost before the reply.
- **Poll**: the ext field with the time in milliseconds for which a broker may wait for messages.
- **Embedded**: the [embedded broker](../embedded-broker.md) serves it.
"""
_TITLES = {
    "Requests of clients": "Requests of RIP-55 are marked ●.",
    "Requests of operators' tools": "The setting `tools` permits all of them, the reading ones, or none.",
    "Requests of brokers": "Brokers send these to Gantry, which relays them to clients.",
}


def page() -> str:
    """Return the page."""
    rows = REQUESTS.values()
    groups = (
        [row for row in rows if row.direction is not Direction.BROKER and not row.tool],
        [row for row in rows if row.direction is not Direction.BROKER and row.tool],
        [row for row in rows if row.direction is not Direction.CLIENT],
    )
    sections = (
        f"## {title}\n\n{text}\n\n{_table(group)}" for (title, text), group in zip(_TITLES.items(), groups, strict=True)
    )
    return markdown.page("Request table", _INTRODUCTION, *sections, contents=False)


def _table(rows: Iterable[RequestSpec]) -> str:
    head = (
        "code",
        "request",
        "RIP-55",
        "action",
        "topic, group, broker",
        "required",
        "served by",
        "repeatable",
        "poll",
        "embedded",
    )
    return table(head, map(_cells, rows))


def _cells(spec: RequestSpec) -> tuple[str, ...]:
    names = (code(name) if name else "-" for name in (spec.topic, spec.group, spec.broker))
    return (
        str(int(spec.code)),
        spec.name,
        "●" if spec.rip55 else "",
        spec.action.value,
        ", ".join(names),
        codes(sorted(spec.required)),
        spec.replica.value,
        "yes" if spec.repeatable else "",
        code(spec.poll or ""),
        "yes" if spec.code in BROKER or spec.code in NAME_SERVER else "",
    )
