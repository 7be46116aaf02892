"""Settings reach the options of the parts that they configure."""

import json
import logging
import ssl
from dataclasses import fields
from pathlib import Path

import pytest
import trustme

from grpc_gateway.gateway_options import GatewayOptions
from protocol_negotiation.peer import HostPort
from proxy.auth.assembly import grpc_guard
from proxy.auth.audit import to_file
from proxy.auth.authority import Authority
from proxy.backends.embedded_settings import broker_settings
from proxy.frontends import listeners
from proxy.observability.metrics.registry import Metrics
from proxy.observability.metrics.stats import Query
from proxy.operations.peers import Peers
from proxy.settings.grpc import GrpcSettings
from tests.proxy.auth.users import own_source
from tests.proxy.settings.conftest import Load

# Numbers of the table `grpc` that reach the messaging service under their own names.
_SERVICE = sorted(
    field.name
    for field in fields(GatewayOptions)
    if field.name in GrpcSettings.model_fields and type(GrpcSettings.model_fields[field.name].default) in (int, float)
)


@pytest.mark.parametrize("name", _SERVICE)
def test_numbers_of_grpc_reach_the_messaging_service(loaded: Load, name: str) -> None:
    default = GrpcSettings.model_fields[name].default
    # Smaller values are within all ranges, but for minimums that exceed maximums.
    other = default * 2 if name in ("max_polling", "max_invisible") else type(default)(default * 0.75)
    options = loaded(f"[grpc]\n{name} = {other}").grpc.options(90.0)
    assert getattr(options, name) == other != default


def test_the_interval_of_pings_reaches_the_server(loaded: Load) -> None:
    options = loaded("[grpc]\nmin_ping_interval = 3.0").grpc.server_options(90.0)
    assert options.limits.ping_interval == 3.0


def test_the_mode_of_a_socket_reaches_its_listener(loaded: Load) -> None:
    settings = loaded('[[listen]]\naddress = "unix:/s"\nsocket_mode = "0660"')
    assert listeners._options(settings.listen[0], settings, with_tls=False).socket_mode == 0o660


def test_the_check_of_the_whole_chain_reaches_the_certificates(loaded: Load) -> None:
    files = loaded("[tls]\ncertificate = '/c'\nkey = '/k'\nclient_ca = '/a'\ncrl = '/r'\ncrl_chain = true").tls.files
    assert files is not None
    assert files.crl_chain


def test_the_maximum_of_consumer_groups_reaches_the_embedded_broker(loaded: Load) -> None:
    settings = loaded('[embedded]\ndirectory = "/d"\nmax_groups = 77').embedded
    assert broker_settings(settings, HostPort("127.0.0.1", 1)).max_groups == 77


def test_the_maximum_of_offsets_reaches_the_embedded_broker(loaded: Load) -> None:
    settings = loaded('[embedded]\ndirectory = "/d"\nmax_offsets = 77').embedded
    assert broker_settings(settings, HostPort("127.0.0.1", 1)).max_offsets == 77


def test_replicas_are_trusted_by_the_authority_of_the_settings(loaded: Load, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    peers = f"[admin]\nlisten = '127.0.0.1:0'\npeers = ['https://gantry:8090']\npeer_token = '{'t' * 32}'"
    own = Peers(loaded(f"{peers}\npeer_ca = '{tmp_path / 'ca.pem'}'").admin, "a")._tls()
    assert isinstance(own, ssl.SSLContext)
    assert [each["subject"] for each in own.get_ca_certs()] == [_subject(authority)]
    assert own.verify_mode is ssl.CERT_REQUIRED


def _subject(authority: trustme.CA) -> object:
    context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
    return context.get_ca_certs()[0]["subject"]


@pytest.mark.anyio
async def test_the_window_and_the_zones_of_signed_times_reach_the_guard(loaded: Load, tmp_path: Path) -> None:
    settings = loaded('[auth]\nusers = "/u"\ndate_window = 10.0\ndate_zones = ["+08:00"]').auth
    guard = grpc_guard(settings, Authority([own_source(tmp_path)]))
    assert (guard._window, guard._zones) == (10.0, (8 * 3600,))


def test_the_size_and_number_of_audit_files_bound_them(loaded: Load, tmp_path: Path) -> None:
    settings = loaded(f'[auth]\naudit = "{tmp_path / "audit"}"\naudit_size = 65536\naudit_files = 2').auth
    logger = logging.getLogger("gantry.audit")
    logger.setLevel(logging.INFO)
    with to_file(settings):
        for _ in range(10):
            logger.info("%s", "x" * 32_000)
    assert {file.name: file.stat().st_size for file in tmp_path.iterdir() if file.name.startswith("audit")} == {
        "audit": 64_002,
        "audit.1": 64_002,
        "audit.2": 64_002,
    }


def test_the_prefix_of_statistics_is_in_their_names(loaded: Load) -> None:
    metrics = Metrics(loaded('[metrics]\nstat_prefix = "edge"').metrics)
    names = [each["name"] for each in json.loads(metrics.stats(Query.parse({"format": "json"}))[1])["stats"][:-1]]
    assert names
    assert all(name.startswith("rocketmq.edge.") for name in names)
