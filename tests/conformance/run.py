"""Conformance tests by external programs, on Gantry's gRPC transport and on grpcio's (`make conformance`).

    python -m tests.conformance.run [--only TEXT …] [--transport inprocess|grpcio|both]

The programs are h2spec and grpc-go's interop client; `wire_cases` adds cases of this project. The exit code depends on
the transport ``inprocess`` only. A skipped case has failed.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.conformance import h2spec, interop_client, programs, wire_cases
from tests.conformance.programs import Result
from tests.conformance.server_process import Server, ServerFailed, serving

_TESTED = "inprocess"
_TRANSPORTS = (_TESTED, "grpcio")
# Characters of a failure's reason to print.
_NOTE_WIDTH = 100


def main() -> int:
    """Run all cases; return 0 if all of the transport ``inprocess`` have passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="run only cases whose names contain this text"
    )
    parser.add_argument("--transport", choices=(*_TRANSPORTS, "both"), default="both")
    options = parser.parse_args()
    chosen = _TRANSPORTS if options.transport == "both" else (options.transport,)
    directory = programs.install()
    # Concurrently, as h2spec mostly waits for frames that do not arrive.
    with ThreadPoolExecutor() as threads:
        columns = dict(zip(chosen, threads.map(partial(_run_cases, directory, options.only), chosen), strict=True))
    _print_table(columns)
    for transport, (_, closing_lines) in columns.items():
        for line in closing_lines:
            print(f"{transport}: {line}")
    if _TESTED not in columns:
        return 0
    return _exit_code(columns[_TESTED][0], whole=not options.only)


_Column = tuple[list[Result], list[str]]


def _run_cases(directory: Path, only: Sequence[str], transport: str) -> _Column:
    """Return the results of one transport, and the closing lines of the programs."""
    results: list[Result] = []
    closing_lines: list[str] = []
    ended = Result("the server stops properly, without a traceback in its log", True)
    with tempfile.TemporaryDirectory(prefix="gantry-conformance-") as name:
        try:
            with serving(transport, Path(name)) as server:
                if _selects_h2spec(only):
                    for h2spec_results, line in _plain_and_tls(partial(h2spec.run, directory, server)):
                        results += h2spec_results
                        closing_lines.append(f"h2spec: {line}")
                results += _interop(directory, server, only) + _wire(server, only)
        except ServerFailed as failure:
            ended = Result(ended.case, False, "see below")
            closing_lines.append(str(failure))
    return [*(result for result in results if _is_selected(result.case, only)), ended], closing_lines


def _plain_and_tls(run: Callable[..., tuple[list[Result], str]]) -> list[tuple[list[Result], str]]:
    with ThreadPoolExecutor() as threads:
        return [future.result() for future in [threads.submit(run, tls=tls) for tls in (False, True)]]


def _interop(directory: Path, server: Server, only: Sequence[str]) -> list[Result]:
    return [
        interop_client.run(directory, server, name, case, tls=tls)
        for name, case, tls in interop_client.names()
        if _is_selected(name, only)
    ]


def _wire(server: Server, only: Sequence[str]) -> list[Result]:
    return [
        wire_cases.run(server, name, case, tls=tls)
        for name, case, tls in wire_cases.names()
        if _is_selected(name, only)
    ]


def _selects_h2spec(only: Sequence[str]) -> bool:
    # Names of h2spec's cases are not known before the run. A text that occurs in another case's name is not h2spec's.
    others = [name for name, *_ in (*interop_client.names(), *wire_cases.names())]
    return not only or any(not any(text in name for name in others) for text in only)


def _is_selected(case: str, only: Sequence[str]) -> bool:
    return not only or any(text in case for text in only)


def _print_table(columns: dict[str, _Column]) -> None:
    rows: dict[str, dict[str, Result]] = {}
    for transport, (results, _) in columns.items():
        for result in results:
            rows.setdefault(result.case, {})[transport] = result
    width = max(map(len, rows), default=0)
    print(f"{'case':{width}}  {'  '.join(f'{transport:9}' for transport in columns)}")
    for case, row in rows.items():
        outcomes = "  ".join(f"{_outcome(row.get(transport)):9}" for transport in columns)
        note = next(iter(row.values())).note
        print(f"{case:{width}}  {outcomes}  {note[:_NOTE_WIDTH]}".rstrip())


def _outcome(result: Result | None) -> str:
    if result is None:
        return "-"
    return "pass" if result.passed else "FAIL"


def _exit_code(results: list[Result], *, whole: bool) -> int:
    passed = sum(result.passed for result in results)
    print(f"{passed} passed, {len(results) - passed} failed")
    h2spec_cases = sum(result.case.startswith("h2spec plain") for result in results)
    if whole and h2spec_cases < h2spec.CASES:
        print(f"h2spec ran {h2spec_cases} cases instead of {h2spec.CASES}")
        return 1
    return int(passed != len(results) or not results)


if __name__ == "__main__":
    sys.exit(main())
