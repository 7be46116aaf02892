"""Handlers of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

from typing import Any

import orjson

from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.lock_table import Queue
from proxy.embedded.broker.request import Answer, Request
from proxy.embedded.broker.source_share import source_of_client
from remoting import command as commands
from remoting.errors import BodyError
from remoting.fastjson import load_request


def lock(broker: Broker, request: Request) -> Answer:
    """LOCK_BATCH_MQ: lock or renew queues; return those that the client holds now."""
    group, client_id, queues = _parse(request.command.body)
    locked = broker.locks.lock(group, client_id, queues, request.now, source_of_client(request.channel))
    queues_locked = [{"topic": topic, "brokerName": name, "queueId": queue_id} for topic, name, queue_id in locked]
    return commands.success(body=orjson.dumps({"lockOKMQSet": queues_locked}))


def unlock(broker: Broker, request: Request) -> Answer:
    """UNLOCK_BATCH_MQ: release queues."""
    broker.locks.unlock(*_parse(request.command.body))
    return commands.success()


def _parse(body: bytes) -> tuple[str, str, list[Queue]]:
    data = load_request(body)
    queues = data.get("mqSet") or []
    if not isinstance(queues, list) or not all(isinstance(item, dict) for item in queues):
        raise BodyError("the mqSet of a lock is not a list of queues")
    return str(data.get("consumerGroup")), str(data.get("clientId")), [_queue(item) for item in queues]


def _queue(item: dict[str, Any]) -> Queue:
    try:
        return str(item["topic"]), str(item["brokerName"]), int(item["queueId"])
    except (KeyError, TypeError, ValueError) as error:
        raise BodyError(f"a queue of a lock is invalid: {error}") from None
