"""The addresses of every page of the live page, on a stage with clients of both protocols."""

from urllib.parse import quote

from tests.proxy.admin.http.replicas import GROUP, UNIQUE_ID, Stage


async def addresses(stage: Stage) -> dict[str, str]:
    """Return the part after `#/` of each page, by the page's name."""
    connections = (await stage.replica.get("/v1/connections"))["items"]

    def of(kind: str, name: str) -> str:
        return f"{kind}/{quote(name, safe='')}"

    return {
        "overview": "",
        "topics": "topics",
        "topic": of("topics", stage.topic),
        "message": of("messages", f"%DLQ%{GROUP}/{UNIQUE_ID}"),
        "groups": "groups",
        "group": of("groups", GROUP),
        "clients": "clients",
        "client": of("clients", "192.0.2.7@4711"),
        "connections": "connections",
        "connection": of("connections", str(connections[0]["number"])),
        "brokers": "brokers",
        "broker": of("brokers", "broker-a"),
        "replicas": "replicas",
        "replica": of("replicas", (await stage.replica.get("/v1/live"))["replica"]),
        "search": of("search", "bill"),
    }
