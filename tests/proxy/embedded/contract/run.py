"""The contract of brokers: the scenarios of tests/cluster before a real cluster and on the embedded broker.

    python -m tests.proxy.embedded.contract.run [--only TEXT] [--places PLACE,…]

A scenario passes where it does what its test says, in each place: before a real cluster, on the embedded broker in
Gantry's own process, and on the embedded broker behind a socket. Those that do not, or that are not everywhere, are
named. Besides, single questions are put to a real and to an embedded broker, whose answers must be equal (answers.py).
The last line counts scenarios and questions; the exit code is 1 if any failed.
"""

import argparse
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.servers import ROOT
from tests.proxy.embedded.contract import answers

_HERE = Path(__file__).parent
_CLUSTER = ROOT / "tests" / "cluster"
_EMBEDDED = ("in-process", "socket")
PLACES = ("cluster", *_EMBEDDED)
_REMOTING = sorted(path.relative_to(_HERE) for path in _HERE.glob("test_*.py"))
_GRPC = sorted(path.relative_to(_HERE) for path in _HERE.glob("grpc/test_*.py"))
# These wait for so long that they are a slice of their own.
_RENEWAL = Path("grpc/test_renewal.py")


@dataclass(frozen=True)
class Slice:
    """Scenarios that are run by one pytest: files in a directory, perhaps only those of a place."""

    place: str
    files: tuple[Path, ...]
    words: str = ""


# The two that are left out are about Gantry's connections.
CLUSTER = Slice(
    "cluster",
    tuple(_CLUSTER / path for path in (*_REMOTING, *_GRPC)),
    "not test_a_silent_connection and not test_an_idle_client",
)
# Each with brokers of its own, so that they can run side by side: most of their time they wait.
EMBEDDED = {
    "in-process": Slice("in-process", tuple(_HERE / path for path in _REMOTING), "in-process"),
    "socket": Slice("socket", tuple(_HERE / path for path in _REMOTING), "socket"),
    "renewal": Slice("socket", (_HERE / _RENEWAL,)),
    "grpc": Slice("socket", tuple(_HERE / path for path in _GRPC if path != _RENEWAL)),
}


@dataclass
class Found:
    """What came of a slice: outcomes by module and name, without the place ("" where it passed); pytest's output."""

    place: str
    outcomes: dict[tuple[str, str], str] = field(default_factory=dict)
    output: str = ""

    @property
    def failures(self) -> list[str]:
        """Those that did not pass."""
        return [f"{module}::{name}: {why}" for (module, name), why in self.outcomes.items() if why]


def run(part: Slice, only: str = "") -> Found:
    """Run the scenarios of a slice."""
    wanted = " and ".join(f"({text})" for text in (part.words, only) if text)
    found = Found(part.place)
    with tempfile.TemporaryDirectory(prefix="gantry-contract-") as directory:
        results = Path(directory) / "junit.xml"
        words = ["-q", "--no-header", "-p", "no:cacheprovider", f"--junitxml={results}", "-k", wanted]
        command = [sys.executable, "-m", "pytest", *words, *map(str, part.files)]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        found.output = done.stdout
        for case in ET.parse(results).iter("testcase"):
            name, classname = case.get("name", ""), case.get("classname", "")
            module = classname.rpartition(".contract." if ".contract." in classname else "tests.cluster.")[2]
            bad = [(each.get("message") or each.tag).splitlines()[0][:160] for each in case if each.tag in _BAD]
            found.outcomes[module, _without_place(name)] = bad[0] if bad else ""
    return found


# A gRPC client's service stands before the socket in either case, and questions go to brokers themselves.
_ONE_EMBEDDED = ("grpc.", "answers")
_BAD = frozenset(("failure", "error", "skipped"))


def _without_place(name: str) -> str:
    """A test's name as it is before the cluster."""
    for place in _EMBEDDED:
        name = name.replace(f"[{place}-", "[").replace(f"[{place}]", "")
    return name


def report(results: Iterable[Found], places: Iterable[str]) -> int:
    """Name what failed and say how many did; the exit code."""
    table: defaultdict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for found in results:
        for scenario, why in found.outcomes.items():
            table[scenario][found.place] = why
    failed = 0
    for (module, name), where in sorted(table.items()):
        wanted = [place for place in places if place != "in-process" or not module.startswith(_ONE_EMBEDDED)]
        wrong = [f"{place}: {where.get(place, 'was not run')}" for place in wanted if where.get(place, "-")]
        if wrong:
            failed += 1
            print(f"FAIL {module}::{name}  {'; '.join(wrong)}")
    print(f"{len(table) - failed} passed, {failed} failed")
    return 1 if failed or not table else 0


def main() -> int:
    """Run the scenarios; 0 where all agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="scenarios that pytest's -k finds by this")
    parser.add_argument("--places", default=",".join(PLACES), help="default: %(default)s")
    options = parser.parse_args()
    places = [place for place in PLACES if place in options.places.split(",")]
    parts = [part for part in (CLUSTER, *EMBEDDED.values()) if part.place in places]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda part: run(part, options.only), parts))
    if not options.only and {"cluster", "socket"} <= set(places):
        outcomes = {("answers", label): difference for label, difference in answers.run().items()}
        results += [Found("socket", outcomes), Found("cluster", dict.fromkeys(outcomes, ""))]
    for found in results:
        if found.failures:
            print(found.output)
    return report(results, places)


if __name__ == "__main__":
    sys.exit(main())
