from pathlib import Path

import pytest

from proxy.settings.model import Settings
from proxy.settings.trusted_files import changeable_by_others

TRUSTED = [("tls", "client_ca"), ("tls", "crl"), ("admin", "client_ca"), ("admin", "crl")]


@pytest.mark.parametrize(("table", "key"), TRUSTED)
def test_a_file_that_others_can_change_is_reported_with_its_key(tmp_path: Path, table: str, key: str) -> None:
    file = tmp_path / "file.pem"
    names = {"certificate": tmp_path / "c.pem", "key": tmp_path / "k.pem", "client_ca": tmp_path / "ca.pem", key: file}
    settings = Settings.model_validate({table: names})
    assert list(changeable_by_others(settings)) == []
    file.touch(0o644)
    assert list(changeable_by_others(settings)) == []
    file.chmod(0o664)
    [text] = changeable_by_others(settings)
    assert text == f"{table}.{key}: {file}: the mode 664 lets others change it: chmod go-w {file}"
