from pathlib import Path

import pytest

from protocol_negotiation.tls import KeyPair, MinimumVersion
from proxy.settings.loading import ConfigError, check_backend
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


@pytest.mark.parametrize(
    ("toml", "made"),
    [
        ("", True),
        ("mode = 'disabled'", False),
        ("self_signed = false", False),
        ("certificate = '/c'\nkey = '/k'", False),
    ],
)
def test_a_certificate_is_made_if_none_is_configured(loaded: Load, toml: str, made: bool) -> None:
    assert (loaded(f"[tls]\n{toml}").tls.self_signed_certificate is not None) == made


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("mode = 'enforcing'", "mode is enforcing, but there is no certificate"),
        ("client_ca = '/ca'", "client_ca needs certificate and key"),
    ],
)
def test_settings_that_need_a_configured_certificate_are_errors_without(loaded: Load, toml: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        loaded(f"[tls]\n{toml}")


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


@pytest.mark.parametrize("mode", ["", "mode = 'permissive'", "mode = 'disabled'"])
def test_required_client_certificates_need_mode_enforcing(loaded: Load, mode: str) -> None:
    with pytest.raises(ConfigError, match=r"tls\.client_auth is required, but tls\.mode (permissive|disabled) accepts"):
        loaded(f"[tls]\ncertificate = '/c'\nkey = '/k'\nclient_ca = '/ca'\nclient_auth = 'required'\n{mode}")


def test_certificates_by_name_and_algorithms_are_options_of_the_listener(loaded: Load) -> None:
    files = loaded(
        "[tls]\ncertificate = '/c'\nkey = '/k'\ncurves = 'X25519:P-256'\nminimum_version = '1.3'\n"
        "[[tls.certificates]]\ncertificate = '/o'\nkey = '/p'\nnames = ['orders.test']"
    ).tls.files
    assert files is not None
    assert files.additional == (KeyPair(Path("/o"), Path("/p"), ("orders.test",)),)
    assert files.options.curves == ("X25519", "P-256")
    assert files.options.minimum_version is MinimumVersion.TLS_1_3


@pytest.mark.parametrize("key", ["ca", "crl", "server_name"])
def test_cluster_tls_without_enabled_is_an_error_that_names_the_key(loaded: Load, key: str) -> None:
    settings = loaded(f"[cluster]\nnamesrv = '192.0.2.1:9876'\n[cluster_tls]\n{key} = 'x'")
    with pytest.raises(ConfigError, match=rf"cluster_tls\.{key}: cluster_tls\.enabled is false"):
        check_backend(settings)
    check_backend(loaded(f"[cluster]\nnamesrv = '192.0.2.1:9876'\n[cluster_tls]\nenabled = true\n{key} = 'x'"))


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("enabled = true\ncertificate = '/c'", "certificate and key belong together"),
        ("enabled = true\nverify = 'insecure'\nca = '/ca'", "verify is insecure, which ignores ca and crl"),
        ("enabled = true\nverify = 'no'", "cluster_tls.verify"),
    ],
)
def test_invalid_cluster_tls_is_an_error(loaded: Load, toml: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        loaded(f"[cluster]\nnamesrv = '192.0.2.1:9876'\n[cluster_tls]\n{toml}")
