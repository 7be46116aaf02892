"""Meanings of response codes: remoting's (below 20000) and the v2 API's."""

from pyspark.sql import Column
from pyspark.sql import functions as f

# Codes that occur in a proxy's traffic; others are shown as numbers.
MEANINGS = {
    0: "success",
    1: "system error",
    2: "system busy",
    3: "request code not supported",
    10: "flush to disk timed out",
    11: "no slave",
    12: "flush to slave timed out",
    13: "illegal message",
    14: "service not available",
    16: "no permission",
    17: "topic does not exist",
    19: "nothing found",
    24: "no such subscription",
    26: "no such group",
    29: "invalid parameter",
    206: "consumer not online",
    209: "too many long polls",
    211: "broker does not exist",
    215: "flow control",
    20000: "success",
    30000: "several results",
    40000: "bad request",
    40013: "invalid receipt handle",
    40100: "unauthorised",
    40300: "forbidden",
    40401: "nothing found",
    40402: "topic does not exist",
    40403: "no such group",
    40800: "client's deadline passed",
    41301: "message too large",
    42900: "too many requests",
    50000: "internal error",
    50001: "internal server error",
    50002: "broker not available",
    50400: "proxy timed out",
    50401: "flush to disk timed out",
    50402: "flush to slave timed out",
}


def meaning(response: Column) -> Column:
    """Return the code in words; "code 123" for unknown ones."""
    words = f.create_map(*(f.lit(each) for pair in MEANINGS.items() for each in pair))
    return f.coalesce(words[response], f.concat(f.lit("code "), response.cast("string")))
