"""Body of LITE_SUBSCRIPTION_CTL (RocketMQ's LiteSubscriptionCtlRequestBody, RIP-83)."""

from collections.abc import Iterable
from typing import Any

import orjson

COMPLETE_REMOVE = "COMPLETE_REMOVE"


def encode(
    action: str,
    client_id: str,
    group: str,
    topic: str,
    names: Iterable[str] = (),
    version: int = 0,
    offset: dict[str, Any] | None = None,
) -> bytes:
    """Return the body of one LiteSubscriptionDTO.

    action: name of a LiteSubscriptionAction. topic: parent topic. names: lite topics. offset: an OffsetOption.
    """
    subscription: dict[str, Any] = {
        "action": action,
        "clientId": client_id,
        "group": group,
        "topic": topic,
        "liteTopicSet": list(names),
        "version": version,
    }
    if offset is not None:
        subscription["offsetOption"] = offset
    return orjson.dumps({"subscriptionSet": [subscription]})
