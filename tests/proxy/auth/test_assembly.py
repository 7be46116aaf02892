"""The judge of remoting clients' requests, by the settings."""

from pathlib import Path

import pytest

from proxy.auth.assembly import judged
from proxy.settings.cluster import ClientSignatures, ClusterSettings
from proxy.settings.embedded import EmbeddedSettings
from proxy.settings.model import Settings


@pytest.mark.parametrize(
    ("signatures", "authenticates", "expected"),
    [
        (ClientSignatures.BOTH, True, (True, True)),
        (ClientSignatures.BOTH, False, (False, False)),
        (ClientSignatures.PASS, True, (False, True)),
        (ClientSignatures.PASS, False, (False, False)),
        (ClientSignatures.CHECK, False, (True, True)),
    ],
)
def test_judge_of_signed_and_unsigned_requests(
    signatures: ClientSignatures, authenticates: bool, expected: tuple[bool, bool]
) -> None:
    settings = Settings(cluster=ClusterSettings(client_signatures=signatures))
    assert judged(settings, authenticates) == expected
    embedded = Settings(embedded=EmbeddedSettings(directory=Path("data")))
    assert judged(embedded, authenticates) == (True, True)
