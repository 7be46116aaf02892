"""Names in JSON bodies, as fastjson in brokers reads them."""

import pytest

from remoting.errors import BodyError
from remoting.json_names import (
    BATCH_ACK_GROUPS,
    BATCH_ACK_TOPICS,
    NameReplacer,
    collect_names,
    replace_names,
)


@pytest.mark.parametrize(
    "body",
    [
        b'{"acks":[{"c":"g","t":"orders","consumerGroup":"secret","topic":"salaries"}]}',
        b'{"c":"g","t":"orders","acks":[{"consumerGroup":"secret","topic":"salaries"}]}',
    ],
)
def test_batch_acks_have_names_under_long_keys_too(body: bytes) -> None:
    assert collect_names(body, batch_ack=True) == (("orders", "salaries"), ("g", "secret"))
    replacer = NameReplacer(
        lambda topic: f"ns%{topic}", lambda group: f"ns%{group}", BATCH_ACK_TOPICS, BATCH_ACK_GROUPS
    )
    replaced = replace_names(body, replacer, client_request=True)
    assert all(b'"ns%' + name in replaced for name in (b"orders", b"salaries", b"g", b"secret"))


@pytest.mark.parametrize("value", ["1", "1.5", "true", '["g"]', '{"a":1}', "[]"])
@pytest.mark.parametrize("key", ["topic", "groupName", "consumer_group"])
def test_names_of_requests_are_texts(key: str, value: str) -> None:
    """Brokers read the number 1 as the name "1"."""
    body = f'{{"subscriptionDataSet":[{{"{key}":{value}}}]}}'.encode()
    with pytest.raises(BodyError, match="is not a text"):
        collect_names(body)
    with pytest.raises(BodyError, match="is not a text"):
        replace_names(body, NameReplacer(str, str, client_request=True), client_request=True)


def test_names_may_be_null() -> None:
    assert collect_names(b'{"topic":null,"group":null}') == ((), ())
