from pathlib import Path

from proxy.settings.data_directories import open_to_others
from proxy.settings.model import Settings


def test_directories_of_other_users_are_reported_with_their_key(tmp_path: Path) -> None:
    broker, records = tmp_path / "broker", tmp_path / "records"
    settings = Settings(embedded={"directory": broker}, traffic={"directory": str(records)})
    assert list(open_to_others(settings)) == []
    broker.mkdir()
    records.mkdir()
    broker.chmod(0o750)
    records.chmod(0o700)
    [text] = open_to_others(settings)
    assert text == f"embedded.directory: {broker} has mode 0750, so other users can access it: chmod 700 {broker}"


def test_object_stores_have_no_directory(tmp_path: Path) -> None:
    assert list(open_to_others(Settings(traffic={"directory": "s3://bucket/records"}))) == []
