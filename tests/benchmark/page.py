"""The page of a run: tables and plots of its rows in one file of HTML."""

import html
import math
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]
SUBJECTS = ("none", "haproxy", "java", "rust", "gantry-pure", "gantry")
_BAR, _GAP, _LABEL, _PLOT = 14, 4, 330, 420
_WIDTH, _HEIGHT, _MARGIN = 380, 220, 46
_COLUMNS = (
    ("operation", "operation"), ("size", "bytes"), ("clients", "clients"), ("window", "in flight"), ("tls", "TLS"),
    ("workers", "workers"), ("topics", "topics"), ("load", "load"), ("subject", "subject"),
    ("cpu_us_per_message", "CPU µs/message"), ("messages_per_second", "messages/s"), ("p50_ms", "p50 ms"),
    ("p99_ms", "p99 ms"), ("p999_ms", "p99.9 ms"), ("rss_mb", "RSS MB"),
    ("syscalls_per_message", "system calls/message"),
    ("broker_cpu_us_per_message", "broker CPU µs"), ("generator_cpu_us_per_message", "generator CPU µs"),
)  # fmt: skip
_STYLE = """
:root { color-scheme: light dark; --text: #1d2433; --soft: #5b6475; --line: #d7dbe3; --back: #ffffff;
  --none: #8a93a5; --haproxy: #7a5bd6; --java: #d9822b; --rust: #b5443c; --gantry-pure: #6fb3e0; --gantry: #0b6bcb; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ef; --soft: #a0a8b8; --line: #353c4a; --back: #14181f;
  --none: #8a93a5; --haproxy: #a58cf2; --java: #f0a04b; --rust: #e0736b; --gantry-pure: #83b8dc; --gantry: #4fa3f7; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); margin: 2rem auto;
  max-width: 1100px; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: 1.2rem; }
svg text { fill: var(--text); font: 12px system-ui, sans-serif; } svg .soft { fill: var(--soft); }
svg line { stroke: var(--line); } .plots { display: flex; flex-wrap: wrap; gap: 1rem; } figure { margin: 0; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; white-space: nowrap; }
th, td { padding: .2rem .6rem; border-bottom: 1px solid var(--line); text-align: right; }
th { position: sticky; top: 0; background: var(--back); } td.word, th.word { text-align: left; }
.key span { display: inline-block; width: .8em; height: .8em; margin: 0 .35em 0 1em; }
""" + "".join(
    f".{name} {{ fill: var(--{name}); stroke: var(--{name}); background: var(--{name}); }}\n" for name in SUBJECTS
)


def render(data: dict[str, Any]) -> str:
    """Return the page of the contents of bench.json."""
    rows = [row for row in data["rows"] if row.get("subject") and "cpu_us_per_message" in row]
    parts = list(dict.fromkeys(str(row["part"]) for row in data["rows"]))
    key = "".join(f'<span class="{name}"></span>{name}' for name in SUBJECTS)
    body = [f"<h1>Benchmark of Gantry</h1><p>{html.escape(str(data.get('gantry', '')))}, {data.get('cpus')} CPUs</p>"]
    body.append(f'<p class="key">{key}</p>{_verdict(data)}')
    for part in parts:
        own = [row for row in rows if row["part"] == part]
        if own:
            body.append(f"<h2>{html.escape(part)}</h2>{_plots(part, own)}{_table(own)}")
    head = f"<meta charset=utf-8><title>Benchmark of Gantry</title><style>{_STYLE}</style>"
    return f"<!doctype html><html lang=en><head>{head}</head><body>{''.join(body)}</body></html>\n"


def _verdict(data: dict[str, Any]) -> str:
    lines = [*data.get("failures", ()), *data.get("missed", ())]
    if not lines:
        return "<p>All aims are reached.</p>"
    return "<h3>Failures and missed aims</h3><ul>" + "".join(f"<li>{html.escape(one)}</li>" for one in lines) + "</ul>"


def _plots(part: str, rows: list[Row]) -> str:
    if part in ("connections", "topics"):
        place = "clients" if part == "connections" else "topics"
        figures = [
            _lines([row for row in rows if row["operation"] == name], place, value, f"{name}: {title}")
            for name in dict.fromkeys(str(row["operation"]) for row in rows)
            for value, title in (("cpu_us_per_message", "CPU µs per message"), ("rss_mb", "RSS MB"))
        ]
    elif part == "paced":
        figures = [
            _bars(rows, value, title)
            for value, title in (("p50_ms", "p50 ms"), ("p99_ms", "p99 ms"), ("p999_ms", "p99.9 ms"))
        ]
    else:
        figures = [
            _bars([row for row in rows if row["subject"] != "none"], "cpu_us_per_message", "CPU µs per message"),
            _bars(rows, "messages_per_second", "messages per second"),
        ]
    return f'<div class="plots">{"".join(figures)}</div>'


def _name(row: Row) -> str:
    words = [str(row["operation"]), f"{row['size']} B", f"{row['clients']}x{row['window']}"]
    words += ["TLS"] if row["tls"] else []
    words += [f"{row['workers']} workers"] if row["workers"] != 1 else []
    words += [str(row["load"])] if row["load"] != "closed" else []
    return " ".join(words)


def _bars(rows: list[Row], value: str, title: str) -> str:
    """Return horizontal bars in groups, one for each load."""
    known = [row for row in rows if row.get(value)]
    top = max((row[value] for row in known), default=1)
    drawn, y = [], 18
    for name in dict.fromkeys(map(_name, known)):
        group = [row for row in known if _name(row) == name]
        drawn.append(f'<text x="{_LABEL - 8}" y="{y + 11}" text-anchor="end">{html.escape(name)}</text>')
        for row in group:
            width = max(1.0, row[value] / top * _PLOT)
            drawn.append(
                f'<rect class="{row["subject"]}" x="{_LABEL}" y="{y}" width="{width:.1f}" height="{_BAR - 2}">'
                f"<title>{row['subject']}</title></rect>"
                f'<text class="soft" x="{_LABEL + width + 5:.1f}" y="{y + 11}">{row[value]:,.5g}</text>'
            )
            y += _BAR
        y += _GAP * 2
    return _figure(title, _LABEL + _PLOT + 80, y, drawn)


def _lines(rows: list[Row], place: str, value: str, title: str) -> str:
    """Return lines over a logarithmic axis, one for each subject."""
    known = [row for row in rows if row.get(value) is not None]
    top = max((row[value] for row in known), default=1) or 1
    places = sorted({row[place] for row in known})
    last = math.log10(places[-1]) if places and places[-1] > 1 else 1

    def x(number: int) -> float:
        return _MARGIN + math.log10(number) / last * (_WIDTH - 2 * _MARGIN)

    def y(number: float) -> float:
        return _HEIGHT - _MARGIN + 16 - number / top * (_HEIGHT - _MARGIN - 10)

    drawn = [
        f'<line x1="{_MARGIN}" x2="{_WIDTH - 10}" y1="{y(level)}" y2="{y(level)}"/>' for level in (0, top / 2, top)
    ]
    drawn += [f'<text x="4" y="{y(level) + 4}">{level:,.4g}</text>' for level in (0, top / 2, top)]
    drawn += [f'<text x="{x(number)}" y="{_HEIGHT - 8}" text-anchor="middle">{number:,}</text>' for number in places]
    for subject in dict.fromkeys(str(row["subject"]) for row in known):
        own = [row for row in known if row["subject"] == subject]
        points = " ".join(f"{x(row[place]):.1f},{y(row[value]):.1f}" for row in own)
        drawn.append(f'<polyline class="{subject}" points="{points}" style="fill:none" stroke-width="2"/>')
        drawn += [
            f'<circle class="{subject}" cx="{x(row[place]):.1f}" cy="{y(row[value]):.1f}" r="3">'
            f"<title>{subject}: {row[value]}</title></circle>"
            for row in own
        ]
    return _figure(title, _WIDTH, _HEIGHT, drawn)


def _figure(title: str, width: int, height: int, drawn: Sequence[str]) -> str:
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}" style="max-width:100%"'
    label = html.escape(title)
    return f'<figure><h3>{label}</h3><svg {size} role="img" aria-label="{label}">{"".join(drawn)}</svg></figure>'


def _table(rows: list[Row]) -> str:
    columns = [(name, title) for name, title in _COLUMNS if any(row.get(name) is not None for row in rows)]
    words = ("operation", "load", "subject")
    head = "".join(f"<th{' class=word' if name in words else ''}>{title}</th>" for name, title in columns)
    lines = [
        "".join(f"<td{' class=word' if name in words else ''}>{_cell(row.get(name))}</td>" for name, _ in columns)
        for row in rows
    ]
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(f"<tr>{line}</tr>" for line in lines)}</table></div>'


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,.2f}" if isinstance(value, float) else html.escape(str(value))
