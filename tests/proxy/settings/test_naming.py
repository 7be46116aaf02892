"""Errors at the start, with the key of the setting that caused them."""

import errno

import pytest

from protocol_negotiation.start_error import StartError
from proxy.observability.records.errors import TrafficError
from proxy.settings.naming import naming, reason


class TwoPartsError(StartError):
    """An error whose constructor takes more than a text."""

    def __init__(self, file: str, line: int) -> None:
        super().__init__(f"{file}, line {line}: invalid")
        self.line = line


class PositionedError(StartError):
    """An error with more than a text."""

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


def test_the_key_is_put_before_the_text() -> None:
    with pytest.raises(TrafficError, match=r"^traffic\.directory: no room$"), naming("traffic.directory"):
        raise TrafficError("no room")


def test_an_error_with_another_constructor_stays_the_same_object() -> None:
    error = TwoPartsError("rules.toml", 7)
    with pytest.raises(TwoPartsError) as caught, naming("rules.file"):
        raise error
    assert caught.value is error
    assert (str(error), error.line) == ("rules.file: rules.toml, line 7: invalid", 7)


def test_attributes_of_an_error_are_kept() -> None:
    with pytest.raises(StartError, match=r"^embedded\.directory: damaged$") as caught, naming("embedded.directory"):
        raise PositionedError("damaged", position=5)
    assert isinstance(caught.value, PositionedError)
    assert caught.value.position == 5


def test_an_error_of_the_system_keeps_its_number() -> None:
    with pytest.raises(FileNotFoundError) as caught, naming("tls"):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "server.pem")
    assert reason(caught.value) == "tls: server.pem: No such file or directory"


def test_other_errors_are_not_changed() -> None:
    with pytest.raises(ValueError, match=r"^a mistake$"), naming("tls"):
        raise ValueError("a mistake")
