"""Brokers that keep users, as a source of credentials."""

import orjson

from remoting import command as commands
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ServiceUnavailable
from tests.proxy.fakes import FakeBackend


class Brokers(FakeBackend):
    """Brokers with one user; `secrets` has the secret at each broker, None for a broker that is away."""

    def __init__(self, **secrets: str | None) -> None:
        super().__init__(names=[name.replace("_", "-") for name in secrets], answer=self._answer)
        self.secrets = {name.replace("_", "-"): secret for name, secret in secrets.items()}

    def _answer(self, broker: str, command: RemotingCommand) -> RemotingCommand | Exception:
        secret = self.secrets[broker]
        if secret is None:
            return ServiceUnavailable(f"{broker} is away")
        if secret == "denied":
            return commands.response(ResponseCode.NO_PERMISSION, remark="no matched policies.")
        if command.code == RequestCode.AUTH_LIST_ACL:
            return commands.success()
        user = {"username": "alice", "password": secret, "userType": "Normal", "userStatus": "enable"}
        return commands.success(body=orjson.dumps([user]))
