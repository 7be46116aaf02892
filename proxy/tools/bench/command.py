"""`gantry bench`: arguments are checked, the load runs, and the report is printed."""

import argparse

from proxy.tools.bench import report
from proxy.tools.bench.drivers import Connector
from proxy.tools.bench.load import Load
from proxy.tools.cli.client import CommandError, UsageError
from proxy.tools.cli.output import Output, progress

_FILLING = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"


async def run(options: argparse.Namespace) -> int:
    """Run the load; return 1 if a request failed or a message was not received. Raises CommandError."""
    if options.action is None:
        raise UsageError("give an action: send, receive or both")
    body = (_FILLING * (options.size // len(_FILLING) + 1))[: options.size]
    load = Load(options, _connector(options.protocol), body)
    try:
        with progress(f"{options.action} {options.topic}") as bar:
            task = bar.add_task("", total=round(options.warmup + options.duration), note="")
            result = await load.run(lambda seconds: bar.update(task, completed=round(seconds)))
    except* CommandError as failures:
        raise failures.exceptions[0] from None
    report.show(Output(options.json), options, result)
    complete = options.action != "both" or result.all_received >= result.all_sent
    return 0 if complete and not report.errors(result) else 1


def _connector(protocol: str) -> Connector:
    # grpcio is imported only if it is used.
    if protocol == "grpc":
        from proxy.tools.bench import grpc_driver

        return grpc_driver.connection
    from proxy.tools.bench import remoting_driver

    return remoting_driver.connection
