"""Measure the takeover time of a killed consumer's queues: direct, through Gantry, through the Java proxy.

python -m tests.faults.takeover [RUNS]
"""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from tests.cluster.client import unique
from tests.cluster.servers import Cluster, Gantry
from tests.faults.java_consumer import JavaConsumer

_QUEUES = 8


def _takeover(cluster: Cluster, endpoint: str, orderly: bool) -> float:
    topic, group = unique("takeover"), unique("group")
    cluster.topic(topic, _QUEUES)
    with JavaConsumer(endpoint, topic, group) as survivor, JavaConsumer(endpoint, topic, group) as victim:
        for holder in (survivor, victim):
            holder.wait(_QUEUES // 2, 90)
        begin = victim.leave() if orderly else victim.kill()
        return survivor.wait(_QUEUES, 180) - begin


def main() -> None:
    """Measure and print."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(Cluster(directory / "peers", "--proxy-port", "0"))
        gantry = stack.enter_context(Gantry(directory, cluster.namesrv))
        ways = {
            "no proxy": cluster.addresses["namesrv"],
            "Gantry": gantry.address,
            "official Java proxy": cluster.addresses["proxy_remoting"],
        }
        for name, endpoint in ways.items():
            for orderly in (False, True):
                seconds = sorted(_takeover(cluster, endpoint, orderly) for _ in range(runs))
                how = "shut down" if orderly else "killed"
                print(  # a script
                    f"{name}, consumer {how}: median {median(seconds):.3f} s, "
                    f"{seconds[0]:.3f} to {seconds[-1]:.3f} s in {runs} runs",
                    flush=True,
                )


if __name__ == "__main__":
    main()
