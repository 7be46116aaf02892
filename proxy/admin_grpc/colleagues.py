"""What the Admin service of one worker asks those of the others: each process knows its own clients, and no more.

Questions and answers are JSON. Without other workers there is nobody to ask.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from proxy.workers.colleagues import Colleagues, Gone, Tell

if TYPE_CHECKING:
    from proxy.app import App

# Seconds that another worker has.
_PATIENCE = 5.0

# Answers a question from what this process knows.
Own = Callable[["App", Any], Any]


class Gathered(NamedTuple):
    """What the other workers answered, and who did not, in words."""

    answers: list[Any]
    missing: list[str]


def serve(app: "App", colleagues: Colleagues, questions: dict[str, Own]) -> None:
    """Answer these questions, by name, when other workers ask them."""

    async def answer(own: Own, content: bytes, tell: Tell) -> None:
        await tell(orjson.dumps(own(app, orjson.loads(content))))

    for name, own in questions.items():
        colleagues.answers[name] = partial(answer, own)


async def gather(app: "App", name: str, question: Any) -> Gathered:
    """Ask all others."""
    colleagues = app.admin.colleagues
    if colleagues is None:
        return Gathered([], [])
    content = orjson.dumps(question)

    async def ask(worker: int) -> bytes | None:
        try:
            (part,) = await colleagues.whole(worker, name, content, _PATIENCE)
        except (Gone, TimeoutError) as error:
            app.admin.worker_answers["late" if isinstance(error, TimeoutError) else "gone"] += 1
            return None
        app.admin.worker_answers["answered"] += 1
        return part

    others = [worker for worker in colleagues.all if worker != colleagues.number]
    told = await asyncio.gather(*map(ask, others))
    missing = [f"worker {worker} does not answer" for worker, part in zip(others, told, strict=True) if part is None]
    return Gathered([orjson.loads(part) for part in told if part is not None], missing)
