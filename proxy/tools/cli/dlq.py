"""`gantry dlq`: dead letters of a consumer group."""

import argparse

from proxy.tools.cli.admin_client import Absent, AdminClient, path
from proxy.tools.cli.client import CommandError, UsageError
from proxy.tools.cli.confirmation import confirm
from proxy.tools.cli.message import clock, show
from proxy.tools.cli.output import Output
from remoting.names import dead_letter_topic

# Dead letters of one request.
_MAX = 100


async def run(options: argparse.Namespace) -> int:
    """Run the action; return 1 if a dead letter could not be sent. Raises CommandError."""
    output = Output(options.json)
    client = AdminClient(options)
    match options.action:
        case "list":
            await _list(client, options, output)
        case "show":
            await _show(client, options, output)
        case "resend":
            return await _resend(client, options, output)
        case "purge":
            confirm(options, f"delete all dead letters of group {options.group}?")
            await client.write("DELETE", path("consumer-groups", options.group, "dead-letters"))
            output.done("dead letters of group", options.group, "deleted")
        case _:
            raise UsageError("give an action: list, show, resend or purge")
    return 0


async def _show(client: AdminClient, options: argparse.Namespace, output: Output) -> None:
    try:
        found = await client.get(path("topics", dead_letter_topic(options.group), "messages", options.id))
    except Absent:
        # Raise Absent for the group itself, if that is missing.
        await client.get(path("consumer-groups", options.group, "dead-letters"), limit=1)
        raise CommandError(f"group {options.group} has no dead letter {options.id}") from None
    show(output, found)


async def _list(client: AdminClient, options: argparse.Namespace, output: Output) -> None:
    found = await client.get(path("consumer-groups", options.group, "dead-letters"), limit=min(options.max, _MAX))
    if output.json:
        for letter in found["items"]:
            output.dump(letter)
        return
    output.table(
        ("DEAD SINCE", "ID", "TOPIC", "TAG", "DELIVERIES", "BYTES"),
        [
            (
                clock(letter["stored"]),
                letter["message_id"],
                letter["topic"],
                letter["tag"] or "",
                letter["reconsumed"] + 1,
                letter["bytes"],
            )
            for letter in found["items"]
        ],
    )


async def _resend(client: AdminClient, options: argparse.Namespace, output: Output) -> int:
    place = path("consumer-groups", options.group, "dead-letters")
    ids = options.ids
    if not ids:
        found = await client.get(place, limit=min(options.max, _MAX))
        ids = [letter["message_id"] for letter in found["items"]]
    if not ids and not output.json:
        output.line(f"group {options.group} has no dead letters")
    if ids:
        receiver = "their topics, for every group of these" if options.to == "topic" else "it"
        confirm(options, f"send {len(ids):,} dead letters of group {options.group} to {receiver} again?")
    failed = 0
    for start in range(0, len(ids), _MAX):
        body = {"message_ids": ids[start : start + _MAX], "to": options.to}
        for result in (await client.write("POST", f"{place}/resend", body))["items"]:
            failed += not result["sent"]
            if output.json:
                output.dump(result)
            elif result["sent"]:
                output.line(result["message_id"], (" sent", "green"), f" to {result['topic']}")
            else:
                output.line(result["message_id"], (" not sent", "red"), f": {result['text']}")
    return 1 if failed else 0
