"""Requests for locks, and brokers that grant them."""

from typing import Any

import orjson

from remoting import command as commands
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import ServiceUnavailable
from tests.proxy.fakes import FakeBackend
from tests.proxy.messages import request

LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ


def queue(broker: str, number: int) -> dict[str, Any]:
    return {"topic": "orders", "brokerName": broker, "queueId": number}


QUEUES = [queue("broker-a", 0), queue("broker-b", 0), queue("broker-a", 1)]


def ask(code: int, queues: Any = QUEUES, oneway: bool = False) -> RemotingCommand:
    body = {"consumerGroup": "g", "clientId": "c1", "onlyThisBroker": False, "mqSet": queues}
    return request(code, orjson.dumps(body), oneway, ns="x", bname="broker-a")


def grants(*away: str, refusing: str = "") -> FakeBackend:
    """Brokers that grant all requested locks, except those in the argument."""

    def answer(broker: str, command: RemotingCommand) -> RemotingCommand | Exception:
        if broker in away:
            return ServiceUnavailable(f"{broker} is away")
        if broker == refusing:
            return commands.response(1, remark="no")
        return commands.success(body=orjson.dumps({"lockOKMQSet": orjson.loads(command.body)["mqSet"]}))

    return FakeBackend(answer=answer)
