"""Run the default plan, and write its figures into the tables of docs/benchmarks.md and README.md.

    python -m tests.benchmark.publish [--from build/bench.json] [options of tests.benchmark.run]

With --from nothing runs. The tables and sentences between marks such as `<!-- bench-clients -->` are replaced; those of
parts that did not run, or have no marks, stay as they are. The exit status is that of the run.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.benchmark.servers import ROOT, say

OUTPUT = ROOT / "build" / "bench.json"
LOADS = {
    "send-sync": "send, 16 clients, one in flight each",
    "send-async": "send, 4 clients, 32 in flight each",
    "send-fifo": "FIFO send, 4 clients, 32 in flight each",
    "pull": "pull, 4 clients",
    "pop-ack": "pop and acknowledge, 4 clients",
    "receive-ack": "receive and acknowledge, 4 consumers",
    "simple-ack": "receive and acknowledge, 4 simple consumers",
    "mixed": "send, receive and acknowledge at once",
}
PROXIES = {"java": "Java proxy", "gantry": "**Gantry**"}
_HEAD = (
    "| load | bytes | proxy | CPU µs per message | messages/s | p50 ms | p99 ms | p99.9 ms | RSS MB |\n"
    "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
)
_README_HEAD = (
    "| load | Gantry, CPU µs/message | Java proxy | ratio | Gantry, messages/s | Java proxy |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: |\n"
)
_SHORT = {300: "300 B", 4096: "4 KiB"}
_OTHERS_HEAD = (
    "| load | Gantry, CPU µs/message | Java proxy | ratio | Gantry, messages/s | Java proxy | Gantry, p99 ms "
    "| Java proxy |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
)
# Parts whose loads are too many for a line each of Gantry and the Java proxy.
OTHERS = ("clients", "variations", "paced", "connections", "topics")

Row = dict[str, Any]
Key = tuple[str, int]


def pairs(data: dict[str, Any], part: str) -> dict[Key, dict[str, Row]]:
    """Return the rows of Gantry and of the Java proxy by load and bytes."""
    found: dict[Key, dict[str, Row]] = {}
    for row in data["rows"]:
        name = str(row.get("operation", "")).removeprefix("grpc-")
        if row["part"] == part and row["subject"] in PROXIES and name in LOADS:
            found.setdefault((name, row["size"]), {})[row["subject"]] = row
    return found


def _ratio(both: dict[str, Row]) -> float | None:
    java, ours = (both.get(name, {}).get("cpu_us_per_message") for name in PROXIES)
    return ours / java if java and ours else None


def table(data: dict[str, Any], part: str) -> str:
    """Return the table of a protocol for the page of benchmarks."""
    lines = []
    for (name, size), both in pairs(data, part).items():
        lines += [
            f"| {LOADS[name]} | {size} | {PROXIES[subject]} | {_cells(subject, both)} |"
            for subject in PROXIES
            if subject in both
        ]
    return _HEAD + "\n".join(lines) + "\n"


def _cells(subject: str, both: dict[str, Row]) -> str:
    row = both[subject]
    if not row["supported"]:
        return "not supported | | | | | "
    ratio = _ratio(both) if subject == "gantry" else None
    cpu = f"{row['cpu_us_per_message']:.1f}" + (f" ({ratio:.2f} of Java's)" if ratio else "")
    times = " | ".join(f"{row[name]:.2f}" for name in ("p50_ms", "p99_ms", "p999_ms"))
    return f"{cpu} | {row['messages_per_second']:,.0f} | {times} | {row['rss_mb']:.0f}"


def others(data: dict[str, Any], part: str) -> str:
    """Return the table of another part, a line for each load."""
    loads: dict[str, dict[str, Row]] = {}
    for row in data["rows"]:
        if row["part"] == part and row["subject"] in PROXIES:
            loads.setdefault(_label(row), {})[row["subject"]] = row
    return _OTHERS_HEAD + "".join(f"| {label} | {_beside(both)} |\n" for label, both in loads.items())


def _label(row: Row) -> str:
    words = [row["operation"], f"{row['size']} B", f"{row['clients']} x {row['window']}"]
    words += ["TLS"] if row["tls"] else []
    words += [f"{row['workers']} workers"] if row["workers"] > 1 else []
    words += [f"{row['topics']} topics"] if row["topics"] > 1 else []
    words += [row["load"]] if row["load"] != "closed" else []
    return ", ".join(words)


def _beside(both: dict[str, Row]) -> str:
    ours, java = (both.get(name, {}) for name in ("gantry", "java"))
    ratio = _ratio(both)
    cells = [_number(one.get("cpu_us_per_message"), 1) for one in (ours, java)]
    cells.append("" if ratio is None else f"{ratio:.2f}")
    cells += [_number(one.get("messages_per_second"), 0) for one in (ours, java)]
    cells += [_number(one.get("p99_ms"), 2) for one in (ours, java)]
    return " | ".join(cells)


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def sentences(data: dict[str, Any]) -> str:
    """Return the sentences below the table of gRPC."""
    compared = {key: ratio for key, both in pairs(data, "grpc").items() if (ratio := _ratio(both))}
    sends = [ratio for (name, _), ratio in compared.items() if name.startswith("send")]
    every = list(compared.values())
    if not sends:
        return ""
    return (
        f"\nFor sends this is {min(sends):.2f} to {max(sends):.2f} of the Java proxy's CPU time, "
        f"for all loads {min(every):.2f} to {max(every):.2f}.\n"
    )


def readme(data: dict[str, Any]) -> str:
    """Return the table and the closing sentence of the README."""
    lines: list[str] = []
    ratios: dict[str, list[float]] = {"remoting": [], "gRPC": []}
    for part, protocol in (("remoting", "remoting"), ("grpc", "gRPC")):
        for (name, size), both in pairs(data, part).items():
            ratio = _ratio(both)
            if ratio is None:
                continue
            ratios[protocol].append(ratio)
            word, _, rest = LOADS[name].partition(", ")
            label = f"{protocol} {word}, {_SHORT[size]}, {rest}"
            if name == "mixed":
                label = f"{protocol} {LOADS[name]}, {_SHORT[size]}"
            java, ours = (both[subject] for subject in PROXIES)
            cpu = f"{ours['cpu_us_per_message']:.1f} | {java['cpu_us_per_message']:.1f} | {ratio:.2f}"
            rates = f"{ours['messages_per_second']:,.0f} | {java['messages_per_second']:,.0f}"
            lines.append(f"| {label} | {cpu} | {rates} |")
    spans = " and ".join(f"{min(one):.2f} to {max(one):.2f} over {name}" for name, one in ratios.items() if one)
    return (
        _README_HEAD
        + "\n".join(lines)
        + f"\n\nThis is the compiled build. Its CPU time per message, as a share of the Java proxy's:\n{spans}.\n"
    )


def replace_marked(text: str, mark: str, content: str) -> str:
    """Return the text with other content between the marks. Raises ValueError without the marks."""
    pattern = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"no marks {mark}")
    return pattern.sub(lambda match: match[1] + content + match[2], text, count=1)


def publish(data: dict[str, Any], root: Path = ROOT) -> None:
    """Write the figures into both pages."""
    page, front = root / "docs" / "benchmarks.md", root / "README.md"
    text, parts = page.read_text(), {row["part"] for row in data["rows"]}
    command = f"`{data['command']}`, medians.\n\n"
    if {"remoting", "grpc"} <= parts:
        text = replace_marked(text, "bench", command + table(data, "remoting"))
        text = replace_marked(text, "bench-grpc", table(data, "grpc") + sentences(data))
        front.write_text(replace_marked(front.read_text(), "bench-readme", readme(data)))
    for part in OTHERS:
        if part in parts and f"<!-- bench-{part} -->" in text:
            text = replace_marked(text, f"bench-{part}", command + others(data, part))
    page.write_text(text)


def main() -> int:
    """Run and publish."""
    words, status, output = sys.argv[1:], 0, OUTPUT
    if words[:1] == ["--from"]:
        output = Path(words[1])
    else:
        status = subprocess.run([sys.executable, "-m", "tests.benchmark.run", *words], cwd=ROOT, check=False).returncode
        if status > 1:
            return status
    publish(json.loads(output.read_text()))
    say("docs/benchmarks.md and README.md have the figures of the run")
    return status


if __name__ == "__main__":
    sys.exit(main())
