"""Handlers of QUERY_ASSIGNMENT and SET_MESSAGE_REQUEST_MODE: the queues of each consumer, to pull or to pop."""

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from proxy.embedded.broker.broker import Broker
from proxy.embedded.broker.errors import Refused
from proxy.embedded.broker.pulling import existing_topic
from proxy.embedded.broker.request import Answer, Request
from proxy.embedded.broker.sending import known_group
from remoting import command as commands
from remoting.codes import ResponseCode
from remoting.errors import BodyError
from remoting.fastjson import load_request
from remoting.names import RETRY_PREFIX

_PULL, _POP = "PULL", "POP"
_BROADCASTING = "BROADCASTING"

# Returns the queues of a client from its index, the number of clients and all queues.
Strategy = Callable[[int, int, Sequence[int]], list[int]]


def _average(index: int, clients: int, queues: Sequence[int]) -> list[int]:
    """Return adjacent queues, equally many for each client; the first clients get one more of the remainder."""
    share, extra = divmod(len(queues), clients)
    start = index * share + min(index, extra)
    return list(queues[start : start + share + (index < extra)])


def _circle(index: int, clients: int, queues: Sequence[int]) -> list[int]:
    """Return every n-th queue."""
    return list(queues[index::clients])


_STRATEGIES: dict[str, Strategy] = {"AVG": _average, "AVG_BY_CIRCLE": _circle}


def query(broker: Broker, request: Request) -> Answer:
    """QUERY_ASSIGNMENT: return the queues of a client; no list if the client should keep its queues."""
    data = _body(request)
    topic, group, client_id = _text(data, "topic"), _text(data, "consumerGroup"), _text(data, "clientId")
    mode, share = _mode(broker, topic, group)
    if data.get("messageModel") == _BROADCASTING:
        queues = _queues(broker, topic)
    else:
        queues = _allocate(
            broker, topic, group, client_id, str(data.get("strategyName")), share if mode == _POP else None
        )
    # Without a route the list is missing, not empty.
    assignments = {}
    if queues is not None:
        assignments["messageQueueAssignments"] = [
            {"messageQueue": {"topic": topic, "brokerName": broker.settings.name, "queueId": queue_id}, "mode": mode}
            for queue_id in queues
        ]
    return commands.success(body=orjson.dumps(assignments))


def _queues(broker: Broker, topic: str) -> list[int] | None:
    config = broker.topics.get(topic)
    return None if config is None or not config.readable else list(range(config.read))


def _allocate(
    broker: Broker, topic: str, group: str, client_id: str, strategy: str, share: int | None
) -> list[int] | None:
    queues = _queues(broker, topic)
    consumers = broker.members.consumers.get(group)
    allocate = _STRATEGIES.get(strategy)
    if queues is None or consumers is None or allocate is None:
        return None
    ids = consumers.client_ids
    if share is not None and (share <= 0 or share >= len(ids) - 1):
        # Each client pops from any queue.
        return [-1]
    if client_id not in ids:
        return []
    index = ids.index(client_id)
    if share is None:
        return allocate(index, len(ids), queues)
    if len(ids) > len(queues):
        return [queues[index % len(queues)]]
    # Its queues and those of the next clients.
    return [queue for step in range(share + 1) for queue in allocate((index + step) % len(ids), len(ids), queues)]


def _mode(broker: Broker, topic: str, group: str) -> tuple[str, int]:
    value = broker.request_modes.get(_key(topic, group))
    if value is None or topic.startswith(RETRY_PREFIX):
        return _PULL, -1
    mode, share = value.decode().split()
    return mode, int(share)


def set_mode(broker: Broker, request: Request) -> Answer:
    """SET_MESSAGE_REQUEST_MODE: set whether a group pulls or pops a topic, and how many clients share a queue."""
    data = _body(request)
    topic, group = _text(data, "topic"), _text(data, "consumerGroup")
    if topic.startswith(RETRY_PREFIX):
        raise Refused(ResponseCode.NO_PERMISSION, "the mode of a retry topic is that of its group's topics")
    existing_topic(broker, topic)
    known_group(broker, group)
    mode, share = str(data.get("mode") or _PULL), data.get("popShareQueueNum", -1)
    if mode not in {_PULL, _POP} or type(share) is not int:
        raise BodyError(f"mode {mode[:40]!r} with a share of {share!r} is invalid")
    broker.request_modes.put(_key(topic, group), f"{mode} {share}".encode())
    return broker.when_durable(commands.success())


def modes(broker: Broker, _: Request) -> Answer:
    """GET_ALL_MESSAGE_REQUEST_MODE."""
    table: dict[str, dict[str, Any]] = {}
    for key, value in broker.request_modes.items():
        topic, group = key.decode().split("\0")
        mode, share = value.decode().split()
        row = {"topic": topic, "consumerGroup": group, "mode": mode, "popShareQueueNum": int(share)}
        table.setdefault(topic, {})[group] = row
    return commands.success(body=orjson.dumps({"messageRequestModeMap": table}))


def _key(topic: str, group: str) -> bytes:
    return f"{topic}\0{group}".encode()


def _body(request: Request) -> dict[str, Any]:
    return load_request(request.command.body)


def _text(data: dict[str, Any], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str) or not value:
        raise BodyError(f"the {name} is missing")
    return value
