"""What proxies tell each other of one client in one consumer group (the official HeartbeatSyncerData), pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from proxy.core.client_registry import ConsumerData, Member
from remoting.errors import BodyError
from remoting.fastjson import load_object

# Our own proxy ids begin like this. Brokers know the members behind every Gantry, and drop those
# of one that died at once; only what brokers do not know has to be learned from announcements.
GANTRY = "gantry/"


class Kind(StrEnum):
    """Whether the client is there or has left."""

    REGISTER = "REGISTER"
    UNREGISTER = "UNREGISTER"


@dataclass(frozen=True, slots=True)
class Announcement:
    """One client's part in one consumer group behind the proxy `proxy_id`."""

    kind: Kind
    proxy_id: str
    group: str
    client_id: str
    address: str
    language: str
    version: int
    consumer: ConsumerData

    @property
    def key(self) -> tuple[str, str]:
        """Tells the member apart from all others."""
        return self.proxy_id, self.client_id

    def age(self, now: int) -> int:
        """Milliseconds since it was made; `now` in milliseconds since 1970."""
        made = self.consumer.data.get("lastUpdateTimestamp")
        return now - made if isinstance(made, int) else 0

    @property
    def from_gantry(self) -> bool:
        """True where brokers know the client."""
        return self.proxy_id.startswith(GANTRY)


def announce(kind: Kind, proxy_id: str, group: str, member: Member, consumer: ConsumerData, now: int) -> Announcement:
    """What to tell of a member of ours; `now` in milliseconds since 1970."""
    data = {**consumer.data, "lastUpdateTimestamp": now}
    return Announcement(
        kind, proxy_id, group, member.client_id, member.address, member.language, member.version, ConsumerData(data)
    )


def encode(announcement: Announcement) -> bytes:
    """The body of the message that tells it. Raises BodyError for a heartbeat that standard JSON cannot hold."""
    try:
        return orjson.dumps(_data(announcement))
    except TypeError as error:
        raise BodyError(f"client {announcement.client_id} cannot be announced: {error}") from None


def _data(announcement: Announcement) -> dict[str, Any]:
    data = announcement.consumer.data
    subscriptions = data.get("subscriptionDataSet") or []
    address = announcement.address
    channel = {
        "remoteProxyIp": announcement.proxy_id.partition("%")[0],
        "remoteAddress": address,
        "localAddress": announcement.proxy_id,
        "type": "REMOTING",
        "extendAttribute": orjson.dumps(subscriptions).decode(),
    }
    return {
        "heartbeatType": announcement.kind.value,
        "clientId": announcement.client_id,
        "language": announcement.language,
        "version": announcement.version,
        "lastUpdateTimestamp": data.get("lastUpdateTimestamp"),
        "group": announcement.group,
        "consumeType": data.get("consumeType"),
        "messageModel": data.get("messageModel"),
        "consumeFromWhere": data.get("consumeFromWhere"),
        "subscriptionDataSet": subscriptions,
        "localProxyId": announcement.proxy_id,
        "channelData": orjson.dumps(channel).decode(),
    }


def decode(body: bytes) -> Announcement:
    """Read a proxy's message. Raises BodyError."""
    data = load_object(body)
    channel = _channel(data.get("channelData"))
    try:
        return Announcement(
            Kind(data["heartbeatType"]),
            _text(data["localProxyId"]),
            _text(data["group"]),
            _text(data["clientId"]),
            str(channel.get("remoteAddress") or "").lstrip("/"),
            str(data.get("language") or ""),
            int(data.get("version") or 0),
            _consumer(data),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise BodyError(f"an announcement lacks a valid {error}") from None


_PART = ("consumeType", "messageModel", "consumeFromWhere", "subscriptionDataSet", "lastUpdateTimestamp")


def _consumer(data: dict[str, Any]) -> ConsumerData:
    part = {key: data[key] for key in _PART if data.get(key) is not None}
    subscriptions = part.get("subscriptionDataSet", [])
    if not isinstance(subscriptions, list) or not all(map(_is_subscription, subscriptions)):
        raise ValueError("subscriptionDataSet")
    return ConsumerData(part)


def _is_subscription(item: object) -> bool:
    return isinstance(item, dict) and all(isinstance(item.get(key, ""), str) for key in ("topic", "subString"))


def _channel(text: object) -> dict[str, Any]:
    return load_object(text.encode()) if isinstance(text, str) and text else {}


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("text")
    return value
