"""Compare Gantry with the official Java proxy, the Rust rival, a TCP relay and no proxy: closed loops over remoting and
gRPC, open loops at a share of the maximum, other sizes, clients, TLS and workers, many connections and topics, official
clients; its bare gRPC transport with grpcio and grpc-go; and, with `--only watching`, its cost with all observability
on and off.

Each operation runs several times for each subject, in rotating order; medians count. The exit code is 1 if a target is
missed (`operations.py` lists them) or a load met errors. The output is a file of JSON and a page of plots beside it.
"""

import argparse
import json
import os
import resource
import shlex
import shutil
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.benchmark import echo, generator, official, page, system_calls, watching
from tests.benchmark.comparison import Comparison, Plan
from tests.benchmark.idle import raise_file_limit
from tests.benchmark.operations import CONNECTIONS, FULL, GRPC, PACED, REMOTING, SECTIONS, Operation, Section
from tests.benchmark.outcome import Row, as_json, closing_line, findings, table
from tests.benchmark.servers import (
    ROOT,
    BenchmarkError,
    Kit,
    add_gantry_option,
    end_on_sigterm,
    gantry,
    kit,
    pure_sources,
    relay,
    say,
    version,
)

OUTPUT = ROOT / "build" / "bench.json"
AUTH_OUTPUT = ROOT / "build" / "bench-auth.json"
SIZES = (300, 4096)
SUBJECTS = tuple(dict.fromkeys(name for section in SECTIONS for name in section.subjects))
OPERATIONS = tuple(dict.fromkeys(operation.name for section in SECTIONS for operation in section.operations))
DEFAULT_PARTS = (*(section.name for section in SECTIONS), "clients", "echo")
PARTS = (*DEFAULT_PARTS, *(section.name for section in FULL), "watching")
QUICK_PARTS = (REMOTING.name, GRPC.name, "echo")
OFFICIAL_MESSAGES = 20_000
# The subjects that maxima are measured of: all must carry what arrives.
MEASURED = ("java", "gantry")
SPARE_FILES = 2000
# Parts and subjects that have no authentication.
WITHOUT_AUTH = ("watching", "echo", "clients")
SUBJECTS_WITHOUT_AUTH = ("rust",)


class Report:
    """Results of the parts: sections of the output file, failures, closing lines."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {"cpus": os.cpu_count(), "gantry": version()}
        self.data["command"] = shlex.join(["python", "-m", "tests.benchmark.run", *sys.argv[1:]])
        self.rows: list[dict[str, object]] = []
        self.failures: list[str] = []
        self.missed: list[str] = []
        self.closing: list[str] = []

    def add(self, name: str, rows: list[dict[str, object]], closing: str) -> None:
        """Add the rows of a part and its closing line."""
        self.rows += [{"part": name, **row} for row in rows]
        self.closing.append(f"{name}: {closing}")

    def finish(self, path: Path, *, quick: bool) -> int:
        """Write the file, print failures and figures; return the exit code."""
        self.data |= {"rows": self.rows, "failures": self.failures, "missed": self.missed}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.data, indent=2, ensure_ascii=False) + "\n")
        path.with_suffix(".html").write_text(page.render(self.data))
        say(f"{self.data['gantry']}; {path} and {path.with_suffix('.html')} have the results")
        for name, reason in self.data.get("absent", {}).items():
            say(f"WITHOUT {name}: {reason}")
        for text in self.failures + self.missed:
            say(f"FAILED {text}")
        say(" | ".join(self.closing))
        return 1 if self.failures or (self.missed and not quick) else 0


def parse_arguments() -> argparse.Namespace:
    """Parse the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmark.run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        metavar="PARTS",
        help=f"default: {','.join(DEFAULT_PARTS)}; also {', '.join(PARTS[len(DEFAULT_PARTS) :])}",
    )
    parser.add_argument("--matrix", choices=("full",), help="all sizes, clients, TLS, workers: hours")
    parser.add_argument("--subjects", default=",".join(SUBJECTS), help="default: %(default)s")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes of a message; default: %(default)s")
    parser.add_argument("--operations", default=",".join(OPERATIONS), help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one measured run (default: %(default)s)")
    parser.add_argument("--messages", type=int, default=20000, help="of a run that drains (default: %(default)s)")
    parser.add_argument("--warmup-messages", type=int, default=30000, help="per operation (default: %(default)s)")
    parser.add_argument(
        "--quick", action="store_true", help="a smoke test of seconds: one round, and only errors make it fail"
    )
    parser.add_argument(
        "--auth",
        action="store_true",
        help="brokers and proxies require credentials, and the loads sign; only remoting and grpc",
    )
    parser.add_argument("--output", type=Path, help="default: build/bench.json; with --auth build/bench-auth.json")
    add_gantry_option(parser)
    args = parser.parse_args()
    if args.output is None:
        args.output = AUTH_OUTPUT if args.auth else OUTPUT
    if args.only is None:
        args.only = ",".join(QUICK_PARTS if args.quick else DEFAULT_PARTS)
        if args.matrix:
            args.only += "," + ",".join(section.name for section in FULL)
    if args.auth:
        args.only = ",".join(part for part in args.only.split(",") if part not in WITHOUT_AUTH)
    if args.quick:
        args.rounds, args.seconds, args.messages, args.warmup_messages = 1, 1.0, 2000, 3000
    return args


def chosen(text: str, known: tuple[str, ...], what: str) -> list[str]:
    """Return the names in a list on the command line, in their usual order."""
    wanted = set(text.split(","))
    if unknown := wanted - set(known):
        raise BenchmarkError(f"no {what} {', '.join(sorted(unknown))}")
    return [name for name in known if name in wanted]


def plan_of(args: argparse.Namespace) -> Plan:
    """Return the amount of work that the command line requests."""
    return Plan(
        rounds=args.rounds,
        seconds=args.seconds,
        messages=args.messages,
        warmup_messages=args.warmup_messages,
        sizes=tuple(int(size) for size in args.sizes.split(",")),
        count_syscalls=not args.quick and system_calls.available(),
    )


def sections_of(args: argparse.Namespace) -> list[Section]:
    """Return the sections with the requested operations and subjects."""
    parts = chosen(args.only, PARTS, "part")
    operations = chosen(args.operations, OPERATIONS, "operation")
    subjects = chosen(args.subjects, SUBJECTS, "subject")
    found = (
        Section(
            section.name,
            tuple(one for one in section.operations if one.name in operations),
            tuple(
                name
                for name in section.subjects
                if name in subjects and not (args.auth and name in SUBJECTS_WITHOUT_AUTH)
            ),
        )
        for section in (*SECTIONS, *FULL)
        if section.name in parts
    )
    return [section for section in found if section.operations and section.subjects]


def compare(sections: list[Section], args: argparse.Namespace, report: Report) -> None:
    """Start the servers and compare them section by section."""
    plan, with_clients = plan_of(args), "clients" in args.only.split(",")
    names = {name for section in sections for name in section.subjects} | (set(MEASURED) if with_clients else set())
    names &= set(args.subjects.split(","))
    maxima: dict[str, float] = {}
    with ExitStack() as stack:
        running = stack.enter_context(kit("java" in names, "rust" in names, args.auth))
        start_subjects(running, names, sections, args, stack)
        report.data["absent"] = running.absent
        for section in sections:
            if section.name == PACED.name:
                section = measure_maxima(running, section, plan, maxima)
            counted = replace(plan, count_syscalls=plan.count_syscalls and section.name in (REMOTING.name, GRPC.name))
            present = [running.subjects[name] for name in section.subjects if name in running.subjects]
            comparison = Comparison(running, section, present, counted, maxima)
            try:
                rows = comparison.rows()
            except BenchmarkError as error:
                # The other parts still have their results.
                report.failures.append(f"{section.name}: {error}")
                say(f"{section.name}: {error}", progress=True)
                continue
            maxima |= maxima_of(rows)
            compared = findings(rows)
            report.failures += comparison.failures
            report.missed += [text for one in compared for text in one.failures()]
            report.add(section.name, [as_json(row) for row in rows], closing_line(rows, compared))
            say(table(rows) + "\n")
        if with_clients:
            present = [running.subjects[name] for name in MEASURED if name in running.subjects]
            rows, failures = official.measure(running, present, args.rounds, OFFICIAL_MESSAGES)
            compared = findings(rows)
            report.failures += failures
            report.missed += [text for one in compared for text in one.failures()]
            report.add("clients", [as_json(row) for row in rows], closing_line(rows, compared))
            say(table(rows) + "\n")


def start_subjects(
    running: Kit, names: set[str], sections: list[Section], args: argparse.Namespace, stack: ExitStack
) -> None:
    """Start Gantry in all its forms, and the relay; a relay that is not installed is reported as absent."""
    command, subjects = args.gantry_command, running.subjects
    if names & {"gantry", "haproxy"}:
        subjects["gantry"] = stack.enter_context(gantry(running, command))
    if "gantry-pure" in names:
        if version().endswith("(pure)"):
            running.absent["gantry-pure"] = "Gantry is not compiled, so that gantry is pure; `make compile` compiles it"
        else:
            sources = stack.enter_context(pure_sources())
            subjects["gantry-pure"] = stack.enter_context(gantry(running, command, "gantry-pure", directory=sources))
    if any(operation.workers > 1 for section in sections for operation in section.operations):
        workers = gantry(running, command, "gantry-workers", "workers = 2\n")
        subjects["gantry-workers"] = stack.enter_context(workers)
    if "haproxy" in names:
        if shutil.which("haproxy"):
            subjects["haproxy"] = stack.enter_context(relay(running, subjects["gantry"].grpc))
        else:
            running.absent["haproxy"] = "HAProxy is not installed"


def maxima_of(rows: list[Row]) -> dict[str, float]:
    """Return the messages per second of each base load that the slower of the proxies carries."""
    found: dict[str, float] = {}
    for row in rows:
        base = row.operation in (*REMOTING.operations, *GRPC.operations) and row.size == SIZES[0]
        if base and row.sample and row.subject in MEASURED:
            rate = row.sample.messages_per_second
            found[row.operation.name] = min(rate, found.get(row.operation.name, rate))
    return found


def measure_maxima(running: Kit, section: Section, plan: Plan, maxima: dict[str, float]) -> Section:
    """Measure the maxima that the run has not measured before; return the loads that have one."""
    for base in (REMOTING, GRPC):
        wanted = {operation.name for operation in section.operations} - maxima.keys()
        missing: tuple[Operation, ...] = tuple(one for one in base.operations if one.name in wanted)
        if missing:
            present = [running.subjects[name] for name in MEASURED if name in running.subjects]
            few = replace(plan, rounds=1, sizes=SIZES[:1], count_syscalls=False)
            maxima |= maxima_of(Comparison(running, replace(base, operations=missing), present, few).rows())
    known = tuple(one for one in section.operations if one.name in maxima)
    return replace(section, operations=known)


def run(args: argparse.Namespace) -> int:
    """Run the benchmark; return the exit code."""
    sections, report = sections_of(args), Report()
    say(report.data["gantry"], progress=True)
    generator.build()
    raise_limit(sections)
    if sections or "clients" in args.only.split(","):
        compare(sections, args, report)
    if "watching" in chosen(args.only, PARTS, "part"):
        with kit(java=False) as running:
            cost = watching.measure(running, args.gantry_command, args.rounds, args.seconds)
        report.missed += cost.missed
        report.add("watching", cost.as_json(), cost.closing_line())
        say(cost.table() + "\n")
    if "echo" in chosen(args.only, PARTS, "part"):
        found = echo.measure(args.rounds, args.seconds)
        report.missed += found.missed
        report.add("echo", found.as_json(), found.closing_line())
        say(found.table() + "\n")
    return report.finish(args.output, quick=args.quick)


def raise_limit(sections: list[Section]) -> None:
    """Allow a file for each connection: twice, as Gantry has one to the broker for each client that sends."""
    most = max((one.clients for section in sections for one in section.operations), default=0)
    if most > CONNECTIONS[-2]:
        try:
            raise_file_limit(2 * most + SPARE_FILES)
        except BenchmarkError as error:
            say(f"{error}: the largest numbers of connections may fail", progress=True)
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> int:
    """Run the benchmark from the command line."""
    end_on_sigterm()
    try:
        return run(parse_arguments())
    except BenchmarkError as error:
        say(f"benchmark: {error}", progress=True)
        return 2


if __name__ == "__main__":
    sys.exit(main())
