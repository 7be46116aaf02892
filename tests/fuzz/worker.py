"""Search for inputs that break a target, guided by the coverage of Gantry's code, with atheris.

    python -m tests.fuzz.worker TARGET DIRECTORY OPTION…

The options are libFuzzer's. DIRECTORY/corpus keeps the inputs that reached new code; the next search begins with them.
"""

import sys
from pathlib import Path

import atheris

# Code whose coverage guides the search. Other packages are imported before, so that they stay fast.
_INSTRUMENTED = [
    "remoting",
    "protocol_negotiation",
    "grpc_gateway.http2",
    "grpc_gateway.consuming.ack_request",
    "grpc_gateway.consuming.receipt_handle",
    "grpc_gateway.sent_message",
    "grpc_gateway.transaction_id",
    "grpc_gateway.wire_decoding",
    "proxy.core.heartbeat",
    "proxy.embedded.broker.filters",
    "proxy.embedded.broker.sql",
]

with atheris.instrument_imports(include=_INSTRUMENTED):
    from tests.fuzz.target import MAX_INPUT
    from tests.fuzz.targets import TARGETS


def main() -> None:
    """Run the search; libFuzzer ends the process."""
    name, directory, *options = sys.argv[1:]
    target, folder = TARGETS[name], Path(directory)
    corpus, seeds, words = folder / "corpus", folder / "seeds", folder / "words.txt"
    for needed in (corpus, seeds):
        needed.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (seeds / str(number)).write_bytes(seed)
    if target.tokens:
        words.write_text("".join(f'"{_escaped(token)}"\n' for token in target.tokens))
        options.append(f"-dict={words}")
    arguments = [f"-artifact_prefix={folder}/", f"-max_len={MAX_INPUT}", *options]
    atheris.Setup([sys.argv[0], *arguments, str(corpus), str(seeds)], target.check)
    atheris.Fuzz()


def _escaped(token: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in token)


if __name__ == "__main__":
    main()
