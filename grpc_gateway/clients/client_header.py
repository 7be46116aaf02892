"""Language and version of a gRPC client in the headers of remoting commands."""

import re

from grpc_gateway.clients.client import Client
from remoting.codes import OWN_VERSION, LanguageCode, version_ordinal
from remoting.command import RemotingCommand

# Languages that clients spell differently from RocketMQ's LanguageCode.
_LANGUAGES = {"GOLANG": LanguageCode.GO, "DOT_NET": LanguageCode.DOTNET, "C++": LanguageCode.CPP}
_VERSION = re.compile(r"v?(\d+)[._](\d+)[._](\d+)", re.ASCII | re.IGNORECASE)


def set_client_header(command: RemotingCommand, client: Client) -> RemotingCommand:
    """Set the client's language and version in a command, and return it."""
    command.header.update(language=language(client.language), version=version(client.version))
    return command


def language(name: str) -> str:
    """Return the LanguageCode of a language in a client's metadata; OTHER if RocketMQ has none."""
    name = name.upper()
    code = _LANGUAGES.get(name)
    if code is not None:
        return code.name
    return name if name in LanguageCode.__members__ else LanguageCode.OTHER.name


def version(text: str) -> int:
    """Return the ordinal of a version in a client's metadata; the proxy's own if RocketMQ has none."""
    match = _VERSION.match(text)
    if match is None:
        return OWN_VERSION
    major, minor, patch = map(int, match.groups())
    return version_ordinal(major, minor, patch) if 4 <= major <= 9 and minor <= 9 and patch <= 9 else OWN_VERSION
