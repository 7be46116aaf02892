"""Announcements of one client in one consumer group (the official proxy's HeartbeatSyncerData). Sans-io."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from proxy.core.client_registry import ConsumerData, Member
from remoting.errors import BodyError
from remoting.fastjson import load_object

# Prefix of Gantry's proxy ids. Announcements with it are ignored: all members behind a Gantry are registered at the
# brokers, which drop the members of a replica that dies at once.
GANTRY_PREFIX = "gantry/"


class Kind(StrEnum):
    """Whether the client has joined or left the group."""

    REGISTER = "REGISTER"
    UNREGISTER = "UNREGISTER"


@dataclass(frozen=True, slots=True)
class Announcement:
    """One client in one consumer group behind the proxy `proxy_id`."""

    kind: Kind
    proxy_id: str
    group: str
    client_id: str
    address: str
    language: str
    version: int
    consumer_data: ConsumerData

    @property
    def key(self) -> tuple[str, str]:
        """The member's key in the client registry."""
        return self.proxy_id, self.client_id

    def age(self, now: int) -> int:
        """Return the milliseconds since it was made; `now` in milliseconds since 1970."""
        made_at = self.consumer_data.data.get("lastUpdateTimestamp")
        return now - made_at if isinstance(made_at, int) else 0

    @property
    def from_gantry(self) -> bool:
        """Whether a Gantry replica made it, so that the client is registered at the brokers."""
        return self.proxy_id.startswith(GANTRY_PREFIX)


def announce(
    kind: Kind, proxy_id: str, group: str, member: Member, consumer_data: ConsumerData, now: int
) -> Announcement:
    """Return the announcement of a local member; `now` in milliseconds since 1970."""
    data = {**consumer_data.data, "lastUpdateTimestamp": now}
    return Announcement(
        kind, proxy_id, group, member.client_id, member.address, member.language, member.version, ConsumerData(data)
    )


def encode(announcement: Announcement) -> bytes:
    """Return the message body. Raises BodyError if the heartbeat cannot be written as standard JSON."""
    try:
        return orjson.dumps(_data(announcement))
    except TypeError as error:
        raise BodyError(f"client {announcement.client_id} cannot be announced: {error}") from None


def _data(announcement: Announcement) -> dict[str, Any]:
    data = announcement.consumer_data.data
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
    """Decode a message body. Raises BodyError."""
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
            _consumer_data(data),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise BodyError(f"an announcement lacks a valid {error}") from None


_CONSUMER_DATA_KEYS = ("consumeType", "messageModel", "consumeFromWhere", "subscriptionDataSet", "lastUpdateTimestamp")


def _consumer_data(data: dict[str, Any]) -> ConsumerData:
    values = {key: data[key] for key in _CONSUMER_DATA_KEYS if data.get(key) is not None}
    subscriptions = values.get("subscriptionDataSet", [])
    if not isinstance(subscriptions, list) or not all(map(_is_subscription, subscriptions)):
        raise ValueError("subscriptionDataSet")
    return ConsumerData(values)


def _is_subscription(item: object) -> bool:
    return isinstance(item, dict) and all(isinstance(item.get(key, ""), str) for key in ("topic", "subString"))


def _channel(text: object) -> dict[str, Any]:
    return load_object(text.encode()) if isinstance(text, str) and text else {}


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("text")
    return value
