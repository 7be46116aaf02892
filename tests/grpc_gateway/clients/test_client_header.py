import pytest

from grpc_gateway.clients.client_header import language, version
from remoting.codes import OWN_VERSION, LanguageCode, version_ordinal


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("JAVA", "JAVA"),
        ("GO", "GO"),
        ("GOLANG", "GO"),
        ("PYTHON", "PYTHON"),
        ("HTTP", "HTTP"),
        ("CPP", "CPP"),
        ("RUST", "RUST"),
        ("DOTNET", "DOTNET"),
        ("DOT_NET", "DOTNET"),
        ("csharp", "OTHER"),
        ("rust", "RUST"),
        ("", "OTHER"),
        ("\N{SNOWMAN}", "OTHER"),
    ],
)
def test_language_maps_to_a_language_code(name: str, expected: str) -> None:
    assert language(name) == expected
    assert expected in LanguageCode.__members__


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("5.0.7", version_ordinal(5, 0, 7)),
        ("5.1.4+a1b2c3", version_ordinal(5, 1, 4)),
        ("V5_1_4", version_ordinal(5, 1, 4)),
        ("5.0.7-SNAPSHOT", version_ordinal(5, 0, 7)),
        ("2.0.0", OWN_VERSION),
        ("5.0.70", OWN_VERSION),
        ("", OWN_VERSION),
        ("next", OWN_VERSION),
    ],
)
def test_version_maps_to_an_ordinal(name: str, expected: int) -> None:
    assert version(name) == expected
