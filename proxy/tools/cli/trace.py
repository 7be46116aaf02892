"""`gantry trace`: who sent and consumed a message."""

import argparse

from proxy.tools.cli.admin_client import AdminClient, path
from proxy.tools.cli.client import CommandError
from proxy.tools.cli.message import clock
from proxy.tools.cli.output import Output

_RESULTS = {True: "ok", False: "failed", None: "open"}


async def run(options: argparse.Namespace) -> int:
    """Print the trace. Raises CommandError if there is none."""
    output = Output(options.json)
    trace = await AdminClient(options).get(path("message-traces", options.id), trace_topic=options.topic)
    if not trace["sends"] and not trace["consumptions"]:
        raise CommandError(
            f"no client has written a trace of {options.id}: gRPC clients need grpc.message_trace, remoting clients "
            "enableMsgTrace"
        )
    if output.json:
        output.dump(trace)
        return 0
    rows = [
        ("sent", sent["group"], clock(sent["time"]), 1, _RESULTS[sent["success"]], sent["milliseconds"])
        for sent in trace["sends"]
    ]
    rows += [
        ("consumed", one["group"], clock(one["time"]), one["attempt"], _RESULTS[one["success"]], one["milliseconds"])
        for one in trace["consumptions"]
    ]
    output.table(("EVENT", "GROUP", "TIME", "ATTEMPT", "RESULT", "MS"), rows)
    return 0
