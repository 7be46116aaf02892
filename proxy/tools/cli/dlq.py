"""`gantry dlq`: dead letters of a consumer group."""

import argparse
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any

from proxy.tools.cli.admin_arguments import DEAD_LETTERS
from proxy.tools.cli.admin_client import Absent, AdminClient, path
from proxy.tools.cli.client import CommandError, UsageError
from proxy.tools.cli.confirmation import confirm
from proxy.tools.cli.message import clock, show
from proxy.tools.cli.output import Output, warn
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
            await client.write("DELETE", _place(options))
            output.done("dead letters of group", options.group, "deleted")
        case _:
            raise UsageError("give an action: list, show, resend or purge")
    return 0


def _place(options: argparse.Namespace) -> str:
    return path("consumer-groups", options.group, "dead-letters")


async def _show(client: AdminClient, options: argparse.Namespace, output: Output) -> None:
    try:
        found = await client.get(path("topics", dead_letter_topic(options.group), "messages", options.id))
    except Absent:
        # Raise Absent for the group itself, if that is missing.
        await client.get(_place(options), limit=1)
        raise CommandError(f"group {options.group} has no dead letter {options.id}") from None
    show(output, found)


async def _list(client: AdminClient, options: argparse.Namespace, output: Output) -> None:
    letters: list[dict[str, Any]] = []
    older: str | None = None
    async for page in client.pages(_place(options), options.max, _MAX, options.before):
        letters += page["items"]
        older = page["next"]
    if output.json:
        for letter in letters:
            output.dump(letter)
    else:
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
                for letter in letters
            ],
        )
    if older is not None:
        warn(f"there are older dead letters: --before {older}")


@dataclass(slots=True)
class _Count:
    """Dead letters that were sent, and those that were not."""

    sent: int = 0
    failed: int = 0


async def _resend(client: AdminClient, options: argparse.Namespace, output: Output) -> int:
    _check(options)
    count, place, step_cursor = _Count(), _place(options), options.before
    # A message that has died twice is sent once.
    seen: set[str] = set()
    try:
        async for ids, older in _steps(client, options):
            if ids and not seen:
                await _ask(client, options, ids, older)
            new = [message_id for message_id in dict.fromkeys(ids) if message_id not in seen]
            seen.update(new)
            sent = count.sent
            if new:
                answer = await client.write("POST", f"{place}/resend", {"message_ids": new, "to": options.to})
                _report(output, answer["items"], count)
                if count.sent == sent:
                    # Such as a retry topic that is not known: the others would fail too.
                    break
            step_cursor = older
    except CommandError as error:
        if not seen:
            raise
        hint = "" if step_cursor is None else f"; --before {step_cursor} repeats the last step and continues"
        raise CommandError(f"{count.sent:,} dead letters sent, then: {error}{hint}") from None
    if not seen and not output.json:
        output.line(f"group {options.group} has no {'older ' if options.before else ''}dead letters")
    if len(seen) > _MAX and not output.json:
        output.line(f"{count.sent:,} sent, {count.failed:,} not sent")
    return 1 if count.failed else 0


def _check(options: argparse.Namespace) -> None:
    """Raise UsageError if there are both ids and options that select dead letters."""
    if options.ids and options.all:
        raise UsageError("give ids or --all, not both")
    if options.ids and options.max is not None:
        raise UsageError("give ids or --max, not both")
    if options.ids and options.before is not None:
        raise UsageError("give ids or --before, not both")


def _limit(options: argparse.Namespace) -> int | None:
    """Return the maximum number of dead letters to send; None: all."""
    return None if options.all else options.max or DEAD_LETTERS


async def _steps(client: AdminClient, options: argparse.Namespace) -> AsyncIterator[tuple[list[str], str | None]]:
    """Yield the ids of each request, and the cursor behind them. Newer dead letters than the first are left out."""
    if options.ids:
        for start in range(0, len(options.ids), _MAX):
            yield options.ids[start : start + _MAX], None
        return
    async for page in client.pages(_place(options), _limit(options), _MAX, options.before):
        yield [letter["message_id"] for letter in page["items"]], page["next"]


async def _ask(client: AdminClient, options: argparse.Namespace, ids: list[str], older: str | None) -> None:
    """Ask for confirmation, with the number of dead letters as far as it is known."""
    group, limit = options.group, _limit(options)
    if options.ids:
        number = f"{len(options.ids):,}"
    elif older is None:
        number = f"{len(ids):,}"
    elif limit is not None:
        number = f"{len(ids):,}" if len(ids) == limit else f"up to {limit:,}"
    else:
        total = (await client.get(path("consumer-groups", group)))["dead_letters"]
        number = "all" if total is None or options.before else f"all {total:,}"
    receiver = "their topics, for every group of these" if options.to == "topic" else "it"
    confirm(options, f"send {number} dead letters of group {group} to {receiver} again?")


def _report(output: Output, results: Iterable[dict[str, Any]], count: _Count) -> None:
    for result in results:
        count.sent += result["sent"]
        count.failed += not result["sent"]
        if output.json:
            output.dump(result)
        elif result["sent"]:
            output.line(result["message_id"], (" sent", "green"), f" to {result['topic']}")
        else:
            output.line(result["message_id"], (" not sent", "red"), f": {result['text']}")
