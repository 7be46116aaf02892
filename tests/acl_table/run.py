"""The table of access: each request code and rpc with each kind of credential, through Gantry and the Java proxy.

    python -m tests.acl_table.run [--json FILE]

Both check the same users, which the broker keeps, and send requests to it as a super user. A cell has `denied`,
`served`, `error` (neither is certain), or `-` if the proxy does not know the request. `served` without a valid
credential or without permission is marked by `!`. The exit status is 1 if Gantry serves such a request.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from remoting.signature import Credentials
from tests.acl_table.probes import FOR_ALL_USERS, OLD_DATE, SERVED, Rows, Target, table, wait_until_known
from tests.acl_table.requests import GROUP, TOPIC
from tests.cluster.servers import Cluster, Gantry

_ADMIN, _INNER = Credentials("admin", "admin-secret-1"), Credentials("inner", "inner-secret-1")
_BOB = Credentials("bob", "bob-secret-1")
_CONFIG = f"""
tools = "all"
[cluster]
access_key = "{_INNER.access_key}"
secret_key = "{_INNER.secret_key}"
[auth]
brokers = true
"""
# Credentials by the name of the column; the last one is permitted.
USERS: dict[str, Credentials | None] = {
    "no credential": None,
    "unknown user": Credentials("nobody", "x"),
    "wrong secret": Credentials(_ADMIN.access_key, "wrong"),
    "no permission": _BOB,
    "permitted": _ADMIN,
}


def holes(rows: Rows) -> dict[str, list[str]]:
    """Return the columns in which a row is served although it should be denied."""
    found = {}
    for label, cells in rows.items():
        allowed = {"permitted"} | ({"no permission"} if label in FOR_ALL_USERS else set())
        columns = [column for column, outcome in cells.items() if column not in allowed and outcome == SERVED]
        if columns:
            found[label] = columns
    return found


def _print(tables: dict[str, Rows], write: Callable[[str], object]) -> None:
    columns = [*USERS, OLD_DATE]
    write("| request | proxy | " + " | ".join(columns) + " |\n|" + " --- |" * (len(columns) + 2) + "\n")
    wrong = {proxy: holes(rows) for proxy, rows in tables.items()}
    for label in next(iter(tables.values())):
        for proxy, rows in tables.items():
            marked = wrong[proxy].get(label, [])
            cells = [rows[label].get(column, "") + (" !" if column in marked else "") for column in columns]
            write(f"| {label} | {proxy} | " + " | ".join(cells) + " |\n")
    for proxy, found in wrong.items():
        write(f"\n{proxy}: {sum(map(len, found.values()))} cells in {len(found)} rows are served without permission")
        write(f": {', '.join(found)}\n" if found else "\n")


def main() -> int:
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", default="build/acl-table.json", metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gantry-acl-") as name:
        directory = Path(name)
        servers = Cluster(directory / "servers", "--acl", "--quick", "--proxy-port", "0")
        with servers as cluster:
            cluster.topic(TOPIC, 1)
            cluster.group(GROUP)
            cluster.user(_BOB.access_key, _BOB.secret_key)
            with Gantry(directory, cluster.namesrv, _CONFIG) as gantry:
                targets = {
                    "gantry": Target(gantry.address, gantry.address),
                    "java": Target(cluster.addresses["proxy_remoting"], cluster.addresses["proxy_grpc"]),
                }
                asyncio.run(wait_until_known(targets["gantry"], _ADMIN))
                tables = {name: asyncio.run(table(target, USERS, _ADMIN)) for name, target in targets.items()}
    _print(tables, sys.stdout.write)
    file = Path(options.json)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(tables, indent=1))
    return 1 if holes(tables["gantry"]) else 0


if __name__ == "__main__":
    sys.exit(main())
