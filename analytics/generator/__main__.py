"""`python -m analytics.generator DIR`: generate traffic records."""

import argparse
import os
import sys
import time
from dataclasses import fields
from datetime import date
from pathlib import Path

from analytics.generator.generation import generate
from analytics.generator.plan import Plan


def main(arguments: list[str] | None = None) -> int:
    defaults = Plan()
    parser = argparse.ArgumentParser(prog="python -m analytics.generator", description="Generates traffic records.")
    parser.add_argument("dir", type=Path, help="directory for the tables and truth.json")
    parser.add_argument("--records", type=int, default=defaults.records, help="requests, about (%(default)s)")
    parser.add_argument("--days", type=int, default=defaults.days, help="days (%(default)s)")
    parser.add_argument("--start", type=date.fromisoformat, default=defaults.start, help="first day, UTC (%(default)s)")
    parser.add_argument("--seed", type=int, default=defaults.seed, help="the same seed, the same records (%(default)s)")
    parser.add_argument("--tenants", type=int, default=defaults.tenants, help="tenants (%(default)s)")
    parser.add_argument("--incidents", type=int, default=defaults.incidents, help="of each kind (%(default)s)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="processes (%(default)s)")
    options = parser.parse_args(arguments)
    begin = time.monotonic()
    try:
        plan = Plan(**{field.name: getattr(options, field.name) for field in fields(Plan)})
        truth = generate(options.dir, plan, options.processes)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    seconds = time.monotonic() - begin
    size = sum(path.stat().st_size for path in options.dir.rglob("*.parquet"))
    print(
        f"{truth.records['requests']:,} requests in {seconds:.1f} s, {size / 1e6:,.1f} MB in all, under {options.dir}"
    )
    for incident in truth.incidents:
        print(f"  {incident.start:%Y-%m-%d %H:%M}-{incident.end:%H:%M} {incident.kind:17} {incident.text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
