import pytest

from proxy.settings.loading import ConfigError
from tests.proxy.settings.conftest import Load


@pytest.mark.parametrize(
    ("toml", "served"),
    [
        ("certificate = '/c'\nkey = '/k'", True),
        ("certificate = '/c'\nkey = '/k'\nmode = 'enforcing'", True),
        ("certificate = '/c'\nkey = '/k'\nmode = 'disabled'", False),
        ("mode = 'permissive'", False),
    ],
)
def test_tls_files_are_present_if_tls_is_enabled_and_complete(loaded: Load, toml: str, served: bool) -> None:
    assert (loaded(f"[tls]\n{toml}").tls.files is not None) == served


def test_repr_does_not_contain_the_key_password(loaded: Load) -> None:
    settings = loaded("[tls]\ncertificate = '/c'\nkey = '/k'", {"TLS__KEY_PASSWORD": "sesame"})
    assert settings.tls.files is not None
    assert settings.tls.files.key_password == "sesame"
    for shown in (settings, settings.tls, settings.tls.files):
        assert "sesame" not in f"{shown!r} {shown!s}"


@pytest.mark.parametrize(
    "toml", ["[tls]\nkey_password = 'sesame'\nmode = 'on'", "[tls]\nkey = 5\nkey_password = 'sesame'"]
)
def test_error_does_not_contain_the_key_password(loaded: Load, toml: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(toml)
    assert "sesame" not in str(caught.value)
