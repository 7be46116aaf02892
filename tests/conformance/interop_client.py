"""grpc-go's interop client: one process per case, which exits with 0 if the case has passed.

These are all of its cases, except those that need an account at Google.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.programs import Result
from tests.conformance.server_process import SERVER_NAME, Server

_ORCA = '-service_config_json={"loadBalancingConfig":[{"test_backend_metrics_load_balancer":{}}]}'
_SOAK = ("-soak_iterations=200", "-soak_num_threads=8", "-soak_overall_timeout_seconds=60")
_TIME_LIMIT = 90.0

# Cases and their flags. The soak cases exchange large messages on eight threads.
CASES: dict[str, tuple[str, ...]] = {
    "empty_unary": (),
    "large_unary": (),
    "client_streaming": (),
    "server_streaming": (),
    "ping_pong": (),
    "empty_stream": (),
    "timeout_on_sleeping_server": (),
    "cancel_after_begin": (),
    "cancel_after_first_response": (),
    "status_code_and_message": (),
    "special_status_message": (),
    "custom_metadata": (),
    "unimplemented_method": (),
    "unimplemented_service": (),
    "pick_first_unary": (),
    "orca_per_rpc": (_ORCA,),
    "orca_oob": (_ORCA,),
    "rpc_soak": _SOAK,
    "channel_soak": _SOAK,
}


def names() -> Iterator[tuple[str, str, bool]]:
    """Yield name of the result, case, and whether it runs over TLS."""
    for connection, tls in (("plain", False), ("tls", True)):
        for case in CASES:
            yield f"interop {connection} {case}", case, tls


def run(programs: Path, server: Server, name: str, case: str, *, tls: bool) -> Result:
    """Run one case."""
    arguments = [f"-test_case={case}", "-server_host=127.0.0.1", *CASES[case]]
    arguments += [f"-server_port={server.tls if tls else server.plain}"]
    if tls:
        arguments += [
            "-use_tls",
            "-use_test_ca",
            f"-ca_file={server.authority}",
            f"-server_host_override={SERVER_NAME}",
        ]
    try:
        process = subprocess.run([programs / "client", *arguments], capture_output=True, text=True, timeout=_TIME_LIMIT)
    except subprocess.TimeoutExpired:
        return Result(name, False, f"not finished after {_TIME_LIMIT:.0f} s")
    return Result(name, process.returncode == 0, _failure(process.stderr) if process.returncode else "")


def _failure(output: str) -> str:
    fatal = [line for line in output.splitlines() if "FATAL" in line]
    return (fatal or output.splitlines() or ["no output"])[-1]
