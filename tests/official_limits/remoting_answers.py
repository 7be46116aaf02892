"""The answers of a proxy's remoting port to all requests of the remoting half of the table."""

import re

from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingError
from tests.cluster.client import Client, strings
from tests.official_limits.remoting_cases import REMOTING_CASES, RemotingCase

# Code and remark of the response.
Answer = list[str]
# Seconds after which a request counts as not answered.
_TIMEOUT = 8.0
# Parts of remarks that are not compared: addresses, names and places of Java exceptions, times, links.
_VARIABLE = re.compile(
    r"\d+\.\d+\.\d+\.\d+(?::\d+)?|^(?:[a-z]+\.)+[A-Z]\w+(?:Exception|Error): |\b\d{10,}\b|^CODE: \d+ +DESC: "
    r"|, [\w.$/<>]+\(\w+\.java:\d+\)$|(?s:\n.*)"
)


async def _answer(address: str, case: RemotingCase) -> Answer:
    fields = strings({name: value for name, value in case.fields.items() if value is not None})
    # A refusal may end the connection.
    async with Client(address, broker=None) as client:
        try:
            reply = await client.ask(case.code, fields, case.body, timeout=_TIMEOUT)
        except RemotingError as error:
            return [f"no answer ({type(error).__name__})", ""]
    name = ResponseCode(reply.code).name if reply.code in list(ResponseCode) else str(reply.code)
    return [name, _VARIABLE.sub("", reply.remark or "").strip()]


async def ask_all_remoting(address: str) -> dict[str, Answer]:
    """Return the answers to all requests, by label. They are sent one after the other."""
    async with Client(address, "limits-first", broker=None) as client:
        # The group and its retry topic exist before.
        await client.ask(RequestCode.HEART_BEAT, {}, REMOTING_CASES["heartbeat: a group"].body)
    return {label: await _answer(address, case) for label, case in REMOTING_CASES.items()}
