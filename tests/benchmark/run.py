"""Compare Gantry with the official Java proxy, the Rust rival and no proxy, over remoting and gRPC; its bare gRPC
transport with grpcio and grpc-go; and its cost with all observability on and off.

Each operation runs several times for each subject, in rotating order; medians count. The exit code is 1 if a target is
missed (`operations.py` lists them) or a load met errors.
"""

import argparse
import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.benchmark import echo, generator, watching
from tests.benchmark.comparison import Comparison, Plan
from tests.benchmark.operations import SECTIONS, Section
from tests.benchmark.outcome import as_json, closing_line, findings, table
from tests.benchmark.servers import (
    ROOT,
    Attributes,
    BenchmarkError,
    add_gantry_option,
    end_on_sigterm,
    gantry,
    kit,
    say,
)

OUTPUT = ROOT / "build" / "bench.json"
AUTH_OUTPUT = ROOT / "build" / "bench-auth.json"
SIZES = (300, 4096)
SUBJECTS = tuple(dict.fromkeys(name for section in SECTIONS for name in section.subjects))
OPERATIONS = tuple(operation.name for section in SECTIONS for operation in section.operations)
PARTS = (*(section.name for section in SECTIONS), "watching", "echo")
# Parts and subjects that have no authentication.
WITHOUT_AUTH = ("watching", "echo")
SUBJECTS_WITHOUT_AUTH = ("rust",)


class Report:
    """Results of the parts: sections of the output file, failures, closing lines."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {"cpus": os.cpu_count()}
        self.failures: list[str] = []
        self.missed: list[str] = []
        self.closing: list[str] = []

    def add(self, name: str, rows: list[dict[str, object]], closing: str) -> None:
        """Add the rows of a part and its closing line."""
        self.data[name] = rows
        self.closing.append(f"{name}: {closing}")

    def finish(self, path: Path, *, quick: bool) -> int:
        """Write the file, print failures and figures; return the exit code."""
        self.data |= {"failures": self.failures, "missed": self.missed}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.data, indent=2, ensure_ascii=False) + "\n")
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
    parser.add_argument("--only", default=",".join(PARTS), metavar="PARTS", help="default: %(default)s")
    parser.add_argument("--subjects", default=",".join(SUBJECTS), help="default: %(default)s")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes of a message; default: %(default)s")
    parser.add_argument("--operations", default=",".join(OPERATIONS), help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="of one measured run (default: %(default)s)")
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
        for section in SECTIONS
        if section.name in parts
    )
    return [section for section in found if section.operations and section.subjects]


def compare(sections: list[Section], args: argparse.Namespace, report: Report) -> None:
    """Start the servers and compare them section by section."""
    plan = plan_of(args)
    names = {name for section in sections for name in section.subjects}
    with ExitStack() as stack:
        running = stack.enter_context(kit("java" in names, "rust" in names, args.auth))
        subjects: dict[str, Attributes] = dict(running.subjects)
        report.data["absent"] = running.absent
        if "gantry" in names:
            subjects["gantry"] = stack.enter_context(gantry(running, args.gantry_command))
        for section in sections:
            present = [subjects[name] for name in section.subjects if name in subjects]
            comparison = Comparison(running, section, present, plan)
            rows = comparison.rows()
            compared = findings(rows)
            report.failures += comparison.failures
            report.missed += [text for one in compared for text in one.failures()]
            report.add(section.name, [as_json(row) for row in rows], closing_line(rows, compared))
            say(table(rows) + "\n")


def run(args: argparse.Namespace) -> int:
    """Run the benchmark; return the exit code."""
    sections, report = sections_of(args), Report()
    generator.build()
    if sections:
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
