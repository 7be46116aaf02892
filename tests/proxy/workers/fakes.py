"""Workers in one process, over a fake supervisor."""

import asyncio
from collections.abc import Callable

from proxy.workers.frames import Frame, Kind
from proxy.workers.worker_rpc import WorkerRpc


class FakeSupervisor:
    """Forwards frames as the supervisor does. `sent` has all frames, with the numbers of their senders."""

    def __init__(self, workers: int) -> None:
        self.sent: list[tuple[int, Frame]] = []
        self.workers: dict[int, WorkerRpc] = {
            number: WorkerRpc(number, workers, self._sender(number)) for number in range(workers)
        }

    def _sender(self, worker: int) -> Callable[[Frame], None]:
        def send(frame: Frame) -> None:
            self.sent.append((worker, frame))
            asyncio.get_running_loop().call_soon(self._forward, worker, frame)

        return send

    def _forward(self, sender: int, frame: Frame) -> None:
        receiver = self.workers.get(frame.worker)
        if receiver is not None:
            receiver.receive(frame._replace(worker=sender))
        elif frame.kind is Kind.REQUEST:
            self.workers[sender].receive(Frame(Kind.UNAVAILABLE, frame.worker, frame.call))

    def kill(self, worker: int) -> None:
        """End a worker without notice."""
        del self.workers[worker]
        for other in self.workers.values():
            other.receive(Frame(Kind.UNAVAILABLE, worker))

    def kinds(self, sender: int) -> list[Kind]:
        """Return the kinds of all frames that a worker sent."""
        return [frame.kind for worker, frame in self.sent if worker == sender]
