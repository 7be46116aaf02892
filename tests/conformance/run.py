"""What `make conformance` does: outside judges on our gRPC transport, with grpcio beside it.

    python -m tests.conformance.run [--only TEXT …] [--transport inprocess|grpcio|both]

The judges are h2spec, grpc-go's interop client and `wire`. Only what the transport ``inprocess`` achieves counts; a
skipped case has failed.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.conformance import h2spec, interop_client, judges, wire
from tests.conformance.judges import Result
from tests.conformance.process import Server, ServerFailed, serving

_JUDGED = "inprocess"
_TRANSPORTS = (_JUDGED, "grpcio")
# What is shown of a complaint.
_NOTE_WIDTH = 100


def main() -> int:
    """Runs the judges; 0 where every case has passed that counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="cases whose name holds this text")
    parser.add_argument("--transport", choices=(*_TRANSPORTS, "both"), default="both")
    options = parser.parse_args()
    chosen = _TRANSPORTS if options.transport == "both" else (options.transport,)
    programs = judges.install()
    # Side by side: a judge mostly waits for what a server does not do.
    with ThreadPoolExecutor() as threads:
        columns = dict(zip(chosen, threads.map(partial(_judge, programs, options.only), chosen), strict=True))
    _print_table(columns)
    for transport, (_, closing_lines) in columns.items():
        for line in closing_lines:
            print(f"{transport}: {line}")
    if _JUDGED not in columns:
        return 0
    return _verdict(columns[_JUDGED][0], whole=not options.only)


_Column = tuple[list[Result], list[str]]


def _judge(programs: Path, only: Sequence[str], transport: str) -> _Column:
    """Every case on one transport, and what the judges said at the end."""
    results: list[Result] = []
    closing_lines: list[str] = []
    ended = Result("the server ends in good order, and logged no traceback", True)
    with tempfile.TemporaryDirectory(prefix="gantry-conformance-") as name:
        try:
            with serving(transport, Path(name)) as server:
                if _asks_for_h2spec(only):
                    for found, line in _both_ways(partial(h2spec.run, programs, server)):
                        results += found
                        closing_lines.append(f"h2spec: {line}")
                results += _interop(programs, server, only) + _wire(server, only)
        except ServerFailed as failure:
            ended = Result(ended.case, False, "see below")
            closing_lines.append(str(failure))
    return [*(result for result in results if _wanted(result.case, only)), ended], closing_lines


def _both_ways(run: Callable[..., tuple[list[Result], str]]) -> list[tuple[list[Result], str]]:
    with ThreadPoolExecutor() as threads:
        return [future.result() for future in [threads.submit(run, tls=tls) for tls in (False, True)]]


def _interop(programs: Path, server: Server, only: Sequence[str]) -> list[Result]:
    return [
        interop_client.run(programs, server, name, case, tls=tls)
        for name, case, tls in interop_client.names()
        if _wanted(name, only)
    ]


def _wire(server: Server, only: Sequence[str]) -> list[Result]:
    return [wire.run(server, name, case, tls=tls) for name, case, tls in wire.names() if _wanted(name, only)]


def _asks_for_h2spec(only: Sequence[str]) -> bool:
    # Its cases have no names before it ran. A text that is part of another judge's case does not mean h2spec.
    others = [name for name, *_ in (*interop_client.names(), *wire.names())]
    return not only or any(not any(text in name for name in others) for text in only)


def _wanted(case: str, only: Sequence[str]) -> bool:
    return not only or any(text in case for text in only)


def _print_table(columns: dict[str, _Column]) -> None:
    rows: dict[str, dict[str, Result]] = {}
    for transport, (results, _) in columns.items():
        for result in results:
            rows.setdefault(result.case, {})[transport] = result
    width = max(map(len, rows), default=0)
    print(f"{'case':{width}}  {'  '.join(f'{transport:9}' for transport in columns)}")
    for case, row in rows.items():
        verdicts = "  ".join(f"{_word(row.get(transport)):9}" for transport in columns)
        note = next(iter(row.values())).note
        print(f"{case:{width}}  {verdicts}  {note[:_NOTE_WIDTH]}".rstrip())


def _word(result: Result | None) -> str:
    if result is None:
        return "-"
    return "pass" if result.passed else "FAIL"


def _verdict(results: list[Result], *, whole: bool) -> int:
    passed = sum(result.passed for result in results)
    print(f"{passed} passed, {len(results) - passed} failed")
    judged = sum(result.case.startswith("h2spec plain") for result in results)
    if whole and judged < h2spec.CASES:
        print(f"h2spec judged {judged} cases, not {h2spec.CASES}")
        return 1
    return int(passed != len(results) or not results)


if __name__ == "__main__":
    sys.exit(main())
