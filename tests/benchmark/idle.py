"""Open idle connections that only send heartbeats: memory per connection, and number of answers."""

import argparse
import resource
import subprocess
import sys
import time

from tests.benchmark import generator
from tests.benchmark.generator import Result
from tests.benchmark.processes import cpu_seconds, rss_mb
from tests.benchmark.servers import Attributes, BenchmarkError, add_gantry_option, end_on_sigterm, one_subject, say

SPARE_FILES = 1000
TOPIC = "bench-idle"


def raise_file_limit(connections: int) -> None:
    """Allow this process and its children a file descriptor for each connection."""
    needed = connections + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        ceiling = hard if hard == resource.RLIM_INFINITY else max(hard, needed)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, ceiling))
        except (OSError, ValueError) as error:
            raise BenchmarkError(f"{connections} connections need {needed} files, the limit is {hard}") from error


def peak_rss(process: subprocess.Popen[str], pid: int) -> float:
    """Return the peak memory of a subject during the load."""
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, rss_mb(pid))
        time.sleep(0.1)
    return peak


def measure(subject: Attributes, args: argparse.Namespace) -> tuple[Result, float]:
    """Run the idle connections; return their result and the growth of memory in MB."""
    before = rss_mb(subject.pid) if subject.pid else 0.0
    options = {"interval": args.interval, "groups": args.groups, "timeout": args.timeout}
    with generator.started(
        "idle", subject, topic=TOPIC, connections=args.connections, seconds=args.seconds, **options
    ) as process:
        peak = peak_rss(process, subject.pid) if subject.pid else 0.0
        output, errors = process.communicate()
    if not output:
        raise BenchmarkError(f"the load generator failed: {errors.strip()}")
    return generator.parse(output), peak - before


def report(result: Result, growth: float, spent: float, args: argparse.Namespace) -> None:
    """Report the result."""
    counts = result.counts
    say(f"connections: {args.connections}, opened in {counts.get('connect_ms', 0) / 1000:.1f} s")
    if args.subject != "none":
        say(f"memory: {growth:.1f} MB more at the peak, {growth * 1000 / args.connections:.2f} kB per connection")
        say(f"CPU: {spent:.2f} s in {result.seconds:.0f} s and the opening")
    say(
        f"heartbeats: {counts.get('heartbeats', 0)} sent, {counts.get('answered', 0)} answered, "
        f"{counts.get('in_time', 0)} of them within {args.timeout:g} s"
    )
    latency = result.latency
    say(
        f"latency: p50 {latency.p50:.2f} ms, p99 {latency.p99:.2f} ms, "
        f"p99.9 {latency.p999:.2f} ms, max {latency.max:.2f} ms"
    )
    if result.errors:
        say(f"FAILED {result.errors} connections met errors, the first: {result.first_error}")


def parse_arguments() -> argparse.Namespace:
    """Parse the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark.idle", description=__doc__)
    parser.add_argument("--subject", default="gantry", choices=("gantry", "java", "none"))
    parser.add_argument("--connections", type=int, default=10000)
    parser.add_argument("--seconds", type=float, default=65.0, help="after the opening (default: %(default)s)")
    parser.add_argument("--interval", type=float, default=30.0, help="seconds between the heartbeats of a connection")
    parser.add_argument("--timeout", type=float, default=3.0, help="seconds that a heartbeat's answer may take")
    parser.add_argument("--groups", type=int, default=0, help="consumer groups to share; 0 gives each its own")
    add_gantry_option(parser)
    return parser.parse_args()


def main() -> int:
    """Run the measurement from the command line."""
    args = parse_arguments()
    end_on_sigterm()
    try:
        raise_file_limit(args.connections)
        generator.build()
        with one_subject(args.subject, args.gantry_command) as (running, subject):
            running.add_topic(TOPIC)
            before = cpu_seconds(subject.pid) if subject.pid else 0.0
            result, growth = measure(subject, args)
            spent = cpu_seconds(subject.pid) - before if subject.pid else 0.0
        report(result, growth, spent, args)
    except BenchmarkError as error:
        say(f"benchmark: {error}", progress=True)
        return 2
    return 1 if result.errors else 0


if __name__ == "__main__":
    sys.exit(main())
