"""The CPU time of authentication and authorization per request: `python -m tests.benchmark.auth_cost`.

Remoting: the signature of a SEND_MESSAGE_V2 with a body of 256 bytes, and the decision. gRPC: a header that was
verified before, the decision about the rpc and that about its command; and a header that is new.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from grpc_gateway.permissions import RPC_PERMISSIONS
from proxy.auth.grpc_guard import GrpcGuard
from proxy.core.context import Context
from remoting.codes import RequestCode
from remoting.requests import REQUESTS
from tests.proxy.auth.test_authority import command
from tests.proxy.auth.test_replica import rpcs
from tests.proxy.auth.users import ALICE, authority, grpc_metadata, signed
from tests.proxy.fakes import FakeChannel

_CALLS = 20_000
_ROUNDS = 7


def microseconds(work: Callable[[], object]) -> float:
    """Return the CPU time of a call: the least of several rounds."""
    best = float("inf")
    for _ in range(_ROUNDS):
        started = time.process_time()
        for _ in range(_CALLS):
            work()
        best = min(best, time.process_time() - started)
    return best / _CALLS * 1e6


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        made = authority(Path(folder))
        guard = GrpcGuard(made, window=300.0)
    channel = FakeChannel()
    sent = command(RequestCode.SEND_MESSAGE_V2, c="TBW102", d="8", i="KEYS\x01k1\x02", j="0", k="false", m="false")
    sent.body = bytes(256)
    signed(sent, ALICE)
    context = Context(channel, sent, REQUESTS[sent.code], 0.0)
    context.principal = channel.principal = made.of_command(sent, channel.peer)
    metadata = grpc_metadata(ALICE)
    request, needs = rpcs()["SendMessage"], RPC_PERMISSIONS["SendMessage"]
    alice = guard.authenticate(metadata, channel.peer, "SendMessage")
    signature = microseconds(lambda: made.of_command(sent, channel.peer))
    decision = microseconds(lambda: made(context))
    header = microseconds(lambda: guard.authenticate(metadata, channel.peer, "SendMessage"))
    rpc = microseconds(lambda: guard.require(alice, needs(request), channel.peer, "SendMessage"))
    forget = guard._verified.clear

    def new_header() -> None:
        forget()
        guard.authenticate(metadata, channel.peer, "SendMessage")

    print(f"remoting: signature {signature:.2f} us + decision {decision:.2f} us = {signature + decision:.2f} us")
    print(
        f"gRPC: known header {header:.2f} us + rpc {rpc:.2f} us + command {decision:.2f} us = "
        f"{header + rpc + decision:.2f} us"
    )
    print(f"gRPC, each second and client: new header {microseconds(new_header):.2f} us")


if __name__ == "__main__":
    main()
