"""The answers of a proxy to all requests of the table."""

import asyncio
import re
from typing import Any

import grpc.aio

from protos.apache.rocketmq.v2 import definition_pb2 as d
from protos.apache.rocketmq.v2.service_pb2_grpc import MessagingServiceStub
from remoting.codes import RequestCode
from tests.cluster.client import Client, unique
from tests.official_limits import requests as r
from tests.official_limits.cases import CASES, SENDS, Case

# Code and message of the response's status, and the codes of its entries if they differ from it.
Answer = list[str]
_CONCURRENT = 16
# Parts of messages that are not compared: addresses, the names of Java exceptions, a link to RocketMQ's documentation.
_VARIABLE = re.compile(
    r"\d+\.\d+\.\d+\.\d+:\d+|^(?:[a-z]+\.)+[A-Z]\w+Exception: |^CODE: \d+ +DESC: |\nFor more information, [^\n]*$"
)


class Asker:
    """A gRPC client of a proxy, as a producer or a consumer."""

    def __init__(self, address: str, client_type: d.ClientType, version: str = "5.0.7") -> None:
        self._channel = grpc.aio.insecure_channel(address, options=[("grpc.max_send_message_length", -1)])
        self.stub: Any = MessagingServiceStub(self._channel)
        self.metadata = (
            ("x-mq-client-id", unique("limits")),
            ("x-mq-language", "JAVA"),
            ("x-mq-client-version", version),
            ("x-mq-protocol", "v2"),
        )
        self._settings = r.settings(client_type)
        self._telemetry: Any = None

    async def __aenter__(self) -> "Asker":
        self._telemetry = self.stub.Telemetry(metadata=self.metadata)
        await self._telemetry.write(self._settings)
        await self._telemetry.read()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._telemetry.cancel()
        await self._channel.close()

    async def ask(self, case: Case) -> Any:
        """Return the response, or the first one of a stream. Raises grpc.aio.AioRpcError."""
        call = getattr(self.stub, case.rpc)(case.request(), metadata=self.metadata, timeout=case.deadline)
        if case.rpc != "ReceiveMessage":
            return await call
        async for response in call:
            if response.WhichOneof("content") == "status":
                return response
        raise AssertionError("a stream without a status")

    async def answer(self, case: Case) -> Answer:
        """Return the answer to a request."""
        try:
            return of_response(await self.ask(case))
        except grpc.aio.AioRpcError as error:
            return [f"gRPC {error.code().name}", error.details() or ""]


def of_response(response: Any) -> Answer:
    """Return the answer that a response contains."""
    status = response.status
    answer = [d.Code.Name(status.code), _VARIABLE.sub("", status.message)]
    entries = [d.Code.Name(entry.status.code) for entry in getattr(response, "entries", ())]
    return [*answer, *entries] if set(entries) - {answer[0]} else answer


async def create(broker: str) -> None:
    """Create the topics and the group at a broker."""
    async with Client(broker) as client:
        for name, kind in r.TOPICS.items():
            fields = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
            fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False}
            await client.get(RequestCode.UPDATE_AND_CREATE_TOPIC, {**fields, "attributes": f"+message.type={kind}"})


async def ask_all(address: str) -> dict[str, Answer]:
    """Return the answers to all requests, by label."""
    limit = asyncio.Semaphore(_CONCURRENT)
    async with Asker(address, d.PRODUCER) as producer, Asker(address, d.SIMPLE_CONSUMER) as consumer:

        async def answer(label: str, case: Case) -> tuple[str, Answer]:
            async with limit:
                return label, await (producer if label in SENDS else consumer).answer(case)

        answers: list[tuple[str, Answer]] = []
        for last in (False, True):
            answers += await asyncio.gather(
                *(answer(label, case) for label, case in CASES.items() if case.last is last)
            )
        return dict(answers)
