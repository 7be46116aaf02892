"""Counted instructions per message, pure and compiled: the regression guard of the hot paths.

    python -m tests.benchmark.instructions [--only grpc-send,…] [--record]

The operations of `in_process` run under valgrind's callgrind, which counts the instructions of the measured rounds
only. Instructions do not depend on the load of the machine, but on the interpreter: a loop that does not belong to
Gantry is counted as well, and scales the bounds. The bounds are in `instructions.json`, by kind of build; `--record`
writes those of this build. The exit status is 1 if an operation takes more than TOLERANCE above its bound.
"""

import argparse
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from proxy.core.build import build_kind
from tests.benchmark.servers import ROOT, BenchmarkError, say

BOUNDS = Path(__file__).with_name("instructions.json")
# Suffix of an operation with traffic records, traces and traffic rules.
OBSERVED = "-observed"
_PLAIN = ("remoting-send", "remoting-pull", "grpc-send", "grpc-receive-ack")
OPERATIONS = (*_PLAIN, *(name + OBSERVED for name in _PLAIN))
REFERENCE = "reference"
# Share by which an operation may exceed its bound: hashing, addresses and new releases of libraries cause 1 to 2 %.
TOLERANCE = 0.04
_WARM_UP_ROUNDS, _ROUNDS = 20, 20
_REFERENCE_ROUNDS = 2_000
_SWITCH = """
#include <valgrind/callgrind.h>
void start(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void stop(void) { CALLGRIND_DUMP_STATS; CALLGRIND_STOP_INSTRUMENTATION; }
"""


def count(operations: list[str], switch: Path) -> dict[str, float]:
    """Return the instructions per message of each operation, and per round of the reference."""
    names = [REFERENCE, *operations]
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory, "out")
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}"]
        command += [sys.executable, "-m", "tests.benchmark.instructions", "--run", *names, "--switch", str(switch)]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        # The switch writes a file for each operation, in their order.
        dumps = [Path(f"{out}.{number}") for number in range(1, len(names) + 1)]
        if done.returncode or not dumps[-1].exists():
            raise BenchmarkError(f"counting under callgrind failed:\n{done.stderr[-2000:]}")
        totals = [re.search(r"^(?:summary|totals): (\d+)", dump.read_text(), re.MULTILINE) for dump in dumps]
    messages = [int(word) for word in done.stdout.split()]
    return {
        name: int(total[1]) / number if total else 0.0
        for name, total, number in zip(names, totals, messages, strict=True)
    }


def build_switch(directory: Path) -> Path:
    """Compile the library that starts and stops the counting."""
    source, library = directory / "switch.c", directory / "switch.so"
    source.write_text(_SWITCH)
    try:
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BenchmarkError(f"needs a C compiler and valgrind's headers: {error}") from error
    return library


def run(operation: str, library: ctypes.CDLL) -> int:
    """Run one operation with counting; return the number of its messages."""
    if operation == REFERENCE:
        _reference(100)
        library.start()
        _reference(_REFERENCE_ROUNDS)
        library.stop()
        return _REFERENCE_ROUNDS
    # Only in the counting process.
    import uvloop

    from tests.benchmark.in_process import OPERATIONS as KNOWN

    kind = KNOWN[operation.removesuffix(OBSERVED)]

    async def measure() -> None:
        measured = kind(observed=operation.endswith(OBSERVED))
        measured.prepare(_WARM_UP_ROUNDS + _ROUNDS)
        await measured.rounds(_WARM_UP_ROUNDS)
        library.start()
        await measured.rounds(_ROUNDS)
        library.stop()

    uvloop.run(measure())
    return _ROUNDS * kind.messages


def _reference(rounds: int) -> int:
    """Do what the hot path consists of, in plain Python: dictionaries, slices, calls, text."""
    total, table, data = 0, {}, bytes(range(256))
    for number in range(rounds):
        text = f"key-{number & 63}"
        table[text] = data[number & 127 : 200]
        total += len(table.get(text, b"")) + int.from_bytes(data[4:8], "big") + _called(number, text)
    return total


def _called(number: int, text: str) -> int:
    return len(text.encode()) if number & 1 else number


def missed(found: dict[str, float], bounds: dict[str, float]) -> list[str]:
    """Return a line for each operation over its bound, scaled to this interpreter."""
    scale = found[REFERENCE] / bounds[REFERENCE]
    scaled = {name: bounds.get(name, 0.0) * scale for name in found}
    return [
        f"{name}: {value:,.0f} instructions per message, over {scaled[name]:,.0f} by more than {TOLERANCE:.0%}"
        for name, value in found.items()
        if name != REFERENCE and value > scaled[name] * (1 + TOLERANCE)
    ]


def main() -> int:
    """Count, print a table, and compare with the bounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(OPERATIONS), help="operations, separated by commas")
    parser.add_argument("--record", action="store_true", help="write the bounds of this build")
    parser.add_argument("--run", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--switch", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        library = ctypes.CDLL(options.switch)
        for operation in options.run:
            say(str(run(operation, library)))
        return 0
    if shutil.which("valgrind") is None:
        say("instructions: valgrind is not installed", progress=True)
        return 2
    kind, known = build_kind(), json.loads(BOUNDS.read_text()) if BOUNDS.exists() else {}
    with tempfile.TemporaryDirectory() as directory:
        found = count(options.only.split(","), build_switch(Path(directory)))
    bounds = known.get(kind, {})
    for name, value in found.items():
        bound = f", bound {bounds[name]:,.0f}" if name in bounds else ""
        say(f"{name:25} {value:10,.0f} instructions ({kind}{bound})")
    if options.record:
        known[kind] = {**bounds, **{name: round(value) for name, value in found.items()}}
        known["python"] = sysconfig.get_python_version()
        BOUNDS.write_text(json.dumps(known, indent=2) + "\n")
        return 0
    failures = missed(found, bounds) if bounds else [f"no bounds of a {kind} build: run with --record"]
    for line in failures:
        say(line, progress=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
