"""grpc-go's interop client: a process per case, which exits with 0 where the server did everything right.

All cases of its list but those that log in with an account at Google.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.judges import Result
from tests.conformance.process import SERVER_NAME, Server

_ORCA = '-service_config_json={"loadBalancingConfig":[{"test_backend_metrics_load_balancer":{}}]}'
_SOAK = ("-soak_iterations=200", "-soak_num_threads=8", "-soak_overall_timeout_seconds=60")
_TIME_LIMIT = 90.0

# Case and the flags that it needs. The soaks send and take large messages on eight threads at once.
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
    """Name of the row, case, and whether it runs over TLS."""
    for way, tls in (("plain", False), ("tls", True)):
        for case in CASES:
            yield f"interop {way} {case}", case, tls


def run(programs: Path, server: Server, name: str, case: str, *, tls: bool) -> Result:
    """One case."""
    words = [f"-test_case={case}", "-server_host=127.0.0.1", *CASES[case]]
    words += [f"-server_port={server.tls if tls else server.plain}"]
    if tls:
        words += ["-use_tls", "-use_test_ca", f"-ca_file={server.authority}", f"-server_host_override={SERVER_NAME}"]
    try:
        done = subprocess.run([programs / "client", *words], capture_output=True, text=True, timeout=_TIME_LIMIT)
    except subprocess.TimeoutExpired:
        return Result(name, False, f"not finished after {_TIME_LIMIT:.0f} s")
    return Result(name, done.returncode == 0, _complaint(done.stderr) if done.returncode else "")


def _complaint(said: str) -> str:
    fatal = [line for line in said.splitlines() if "FATAL" in line]
    return (fatal or said.splitlines() or ["no word"])[-1]
