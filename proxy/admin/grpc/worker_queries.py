"""What the Admin service of one worker asks those of the others: each process knows its own clients, and no more.

Questions and answers are JSON. Without other workers there is nobody to ask.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import orjson

from proxy.admin.replica import AdminReplica
from proxy.workers.worker_rpc import Gone, Tell, WorkerRpc, outcome, silence

# Seconds that another worker has.
_TIMEOUT = 5.0

# Answers a question from what this process knows.
Own = Callable[[AdminReplica, Any], Any]


class Gathered(NamedTuple):
    """What the other workers answered, by their numbers, and who did not, in words."""

    answers: dict[int, Any]
    missing: list[str]


def serve(replica: AdminReplica, colleagues: WorkerRpc, questions: dict[str, Own]) -> None:
    """Answer these questions, by name, when other workers ask them."""

    async def answer(own: Own, content: bytes, tell: Tell) -> None:
        await tell(orjson.dumps(own(replica, orjson.loads(content))))

    for name, own in questions.items():
        colleagues.answers[name] = partial(answer, own)


async def gather(replica: AdminReplica, name: str, question: Any) -> Gathered:
    """Ask all others."""
    colleagues = replica.admin.colleagues
    if colleagues is None:
        return Gathered({}, [])
    content = orjson.dumps(question)
    others = [worker for worker in colleagues.all if worker != colleagues.number]
    told = await asyncio.gather(*(ask(replica, worker, name, content, _TIMEOUT) for worker in others))
    parts = dict(zip(others, told, strict=True))
    return Gathered(
        {worker: orjson.loads(part) for worker, part in parts.items() if part is not None},
        [silence(worker) for worker, part in parts.items() if part is None],
    )


async def ask(replica: AdminReplica, worker: int, name: str, content: bytes, patience: float) -> bytes | None:
    """Ask one of the others; None where it does not answer within `patience` seconds."""
    assert replica.admin.colleagues is not None
    try:
        (part,) = await replica.admin.colleagues.whole(worker, name, content, patience)
    except (Gone, TimeoutError) as error:
        replica.admin.worker_answers[outcome(error)] += 1
        return None
    replica.admin.worker_answers["answered"] += 1
    return part
