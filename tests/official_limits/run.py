"""`make limits`: the table of limits to the official Java proxy and to Gantry, side by side before the same broker.

It fails if the Java proxy answers differently from what is recorded, or Gantry differently from the Java proxy, apart
from the known differences. `--record` records the Java proxy's answers before.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.cluster.servers import Cluster, Gantry
from tests.official_limits.answers import Answer, ask_all, create
from tests.official_limits.official_answers import GRPC, REMOTING, record, recorded, unexpected
from tests.official_limits.remoting_answers import ask_all_remoting

_OPTIONS = ("--quick", "--proxy-port", "0", "--broker-set", "recallMessageEnable=true")


async def _ask_both(cluster: Cluster, gantry: Gantry) -> dict[str, tuple[dict[str, Answer], dict[str, Answer]]]:
    """Return the answers of the Java proxy and of Gantry, by half of the table."""
    await create(cluster.broker)
    grpc = await asyncio.gather(ask_all(cluster.addresses["proxy_grpc"]), ask_all(gantry.address))
    remoting = await asyncio.gather(
        ask_all_remoting(cluster.addresses["proxy_remoting"]), ask_all_remoting(gantry.address)
    )
    return {GRPC: (grpc[0], grpc[1]), REMOTING: (remoting[0], remoting[1])}


def main() -> int:
    """Compare or record; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with Cluster(directory / "servers", *_OPTIONS) as cluster, Gantry(directory, cluster.namesrv) as gantry:
            halves = asyncio.run(_ask_both(cluster, gantry))
    failures = 0
    for half, (official, ours) in halves.items():
        if options.record:
            record(official, half)
        former = recorded(half)
        changed = [label for label in official if official[label] != former.get(label)]
        for label in changed:
            sys.stdout.write(f"{label}: {official[label]} of the Java proxy, recorded: {former.get(label)}\n")
        differences = unexpected(ours, half)
        for label, text in differences.items():
            sys.stdout.write(f"{label}: {text}\n")
        found = f"{len(changed)} changed, {len(differences)} unexpected differences"
        sys.stdout.write(f"{len(official)} {half or 'grpc_'}requests: {found}\n")
        failures += len(changed) + len(differences)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
