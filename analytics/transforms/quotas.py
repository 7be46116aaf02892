"""Quotas: subjects that would have exceeded a limit of the traffic rules, had it been in force."""

from collections.abc import Callable, Mapping
from functools import reduce
from ipaddress import IPv6Network

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from analytics.transforms.globs import any_glob, any_network
from analytics.transforms.operations import SEND, is_operation
from analytics.transforms.periods import start
from analytics.transforms.rollup import weight
from analytics.transforms.versions import numbers
from proxy.traffic_rules.match_criteria import Match
from proxy.traffic_rules.model import Limit, RuleFile

SCHEMA = t.StructType(
    [
        t.StructField("rule", t.StringType()),
        t.StructField("unit", t.StringType()),
        t.StructField("subject", t.StringType()),
        t.StructField("limit", t.DoubleType()),
        t.StructField("peak", t.DoubleType()),
        t.StructField("seconds_over", t.LongType()),
        t.StructField("refused", t.DoubleType()),
        t.StructField("held", t.DoubleType()),
        t.StructField("over_share", t.DoubleType()),
        t.StructField("first", t.TimestampType()),
        t.StructField("last", t.TimestampType()),
    ]
)

# The request codes, as rules name them, that a replica evaluates for an rpc (grpc_gateway/). Routes and assignments are
# answered without rules; a heartbeat or a termination may be several such requests, or none.
_RPCS: Mapping[str, tuple[str, ...]] = {
    "SendMessage": ("SEND_MESSAGE_V2",),
    "ReceiveMessage": ("POP_MESSAGE", "POP_LITE_MESSAGE"),
    "PullMessage": ("PULL_MESSAGE",),
    "AckMessage": ("ACK_MESSAGE", "BATCH_ACK_MESSAGE"),
    "ChangeInvisibleDuration": ("CHANGE_MESSAGE_INVISIBLETIME",),
    "ForwardMessageToDeadLetterQueue": ("CONSUMER_SEND_MSG_BACK",),
    "EndTransaction": ("END_TRANSACTION",),
    "RecallMessage": ("RECALL_MESSAGE",),
    "UpdateOffset": ("UPDATE_CONSUMER_OFFSET",),
    "GetOffset": ("QUERY_CONSUMER_OFFSET",),
    "QueryOffset": ("GET_MIN_OFFSET", "GET_MAX_OFFSET", "SEARCH_OFFSET_BY_TIMESTAMP"),
    "SyncLiteSubscription": ("LITE_SUBSCRIPTION_CTL",),
}

_PER = {"client": "client_id", "group": "group", "topic": "topic", "address": "address", "connection": "client_id"}
_UNITS = ("messages", "bytes", "requests")
# Attributes that request records do not contain.
_UNKNOWN = ("listeners", "server_names", "subjects", "users")


def unsupported_limits(rules: RuleFile) -> dict[str, str]:
    """Return the limits that request records cannot evaluate, with the reason: `what_if` leaves them out."""
    found = {rule.name: reason for rule in limits(rules) if (reason := _reason(rule.match)) is not None}
    by_user = {rule.name: "per: records have no user" for rule in limits(rules) if "user" in rule.per}
    return by_user | found


def what_if(requests: DataFrame, rules: RuleFile) -> DataFrame:
    """Return subjects that would have exceeded a limit, for how long and by how much.

    A subject has its own count by the rule's `per` ("*": all together); subjects within their limit are absent. The
    model is a token bucket of the limit's rate and burst, second by second, full again at each full hour, so that hours
    are independent. Requests beyond it are refused (sends) or delayed (receives); both are counted in the limit's unit.
    Retries of clients are not modelled. A connection counts as its client. Sampled records are weighted.

    Columns: rule, unit, subject, limit (per second), peak (of a second), seconds_over, refused, held, over_share (of
    all that it requested), first, last.
    """
    skipped = unsupported_limits(rules)
    found = [
        _judged(requests, rule, unit, float(getattr(rule, unit)))
        for rule in limits(rules)
        if rule.name not in skipped
        for unit in _UNITS
        if getattr(rule, unit) is not None
    ]
    if not found:
        return requests.sparkSession.createDataFrame([], SCHEMA)
    return reduce(DataFrame.unionByName, found)


def limits(rules: RuleFile) -> list[Limit]:
    """Return the rules that are limits; other rules are not evaluated here."""
    return [rule for rule in rules.rule if isinstance(rule, Limit)]


def _reason(match: Match) -> str | None:
    unknown = [name for name in _UNKNOWN if getattr(match, name)]
    if unknown:
        return f"request records do not contain {', '.join(unknown)}"
    if any(isinstance(network, IPv6Network) and network.num_addresses > 1 for network in match.networks):
        return "IPv6 networks are not compared with addresses here, only single addresses"
    return None


def _judged(requests: DataFrame, rule: Limit, unit: str, limit: float) -> DataFrame:
    amount = {
        "messages": f.col("messages"),
        "bytes": f.col("bytes_in") + f.col("bytes_out"),
        "requests": f.lit(1),
    }[unit] * weight(requests)
    asked = requests.where(_matches(rule)).select(
        start("1 second").alias("second"),
        _subject(rule).alias("subject"),
        amount.alias("asked"),
        f.when(is_operation(SEND), amount).otherwise(0.0).alias("sent"),
    )
    seconds = asked.groupBy("subject", "second").agg(f.sum("asked").alias("asked"), f.sum("sent").alias("sent"))
    demand = f.struct(f.unix_seconds("second").alias("second"), "asked", "sent")
    hours = seconds.groupBy("subject", f.date_trunc("hour", "second").alias("hour")).agg(
        f.sort_array(f.collect_list(demand)).alias("demand")
    )
    # As in the proxy: a bucket holds at least one token.
    over = _over(f.col("demand"), limit, max(1.0, limit * rule.burst))
    each = hours.select("subject", "demand", over.alias("over"))
    sums = each.groupBy("subject").agg(
        f.max(f.array_max(f.transform("demand", lambda entry: entry["asked"]))).alias("peak"),
        f.sum("over.seconds").alias("seconds_over"),
        f.sum("over.refused").alias("refused"),
        f.sum("over.held").alias("held"),
        f.sum(f.aggregate("demand", f.lit(0.0), lambda so_far, entry: so_far + entry["asked"])).alias("asked"),
        f.timestamp_seconds(f.min("over.first")).alias("first"),
        f.timestamp_seconds(f.max("over.last")).alias("last"),
    )
    values: dict[str, Column] = {
        "rule": f.lit(rule.name),
        "unit": f.lit(unit),
        "limit": f.lit(limit),
        "over_share": (f.col("refused") + f.col("held")) / f.col("asked"),
    }
    columns = [values.get(field.name, f.col(field.name)).cast(field.dataType).alias(field.name) for field in SCHEMA]
    return sums.where(f.col("seconds_over") > 0).select(*columns)


def _over(demand: Column, rate: float, capacity: float) -> Column:
    """Run the bucket through an hour's seconds; return the unserved amount of each."""
    start_of = f.struct(
        f.lit(capacity).alias("level"),
        f.lit(None).cast("long").alias("at"),
        f.lit(0).cast("long").alias("seconds"),
        f.lit(0.0).alias("refused"),
        f.lit(0.0).alias("held"),
        f.lit(None).cast("long").alias("first"),
        f.lit(None).cast("long").alias("last"),
    )

    def step(bucket: Column, entry: Column) -> Column:
        waited = f.coalesce(entry["second"] - bucket["at"], f.lit(0))
        level = f.least(bucket["level"] + waited * rate, f.lit(capacity))
        beyond = f.greatest(entry["asked"] - level, f.lit(0.0))
        is_over = beyond > 0
        refused = f.when(is_over, beyond * entry["sent"] / entry["asked"]).otherwise(0.0)
        return f.struct(
            f.greatest(level - entry["asked"], f.lit(0.0)).alias("level"),
            entry["second"].alias("at"),
            (bucket["seconds"] + f.when(is_over, 1).otherwise(0)).cast("long").alias("seconds"),
            (bucket["refused"] + refused).alias("refused"),
            (bucket["held"] + beyond - refused).alias("held"),
            f.coalesce(bucket["first"], f.when(is_over, entry["second"])).alias("first"),
            f.when(is_over, entry["second"]).otherwise(bucket["last"]).alias("last"),
        )

    return f.aggregate(demand, start_of, step)


def _subject(rule: Limit) -> Column:
    if not rule.per:
        return f.lit("*")
    return f.concat_ws(" ", *(f.coalesce(f.col(_PER[name]), f.lit("-")) for name in rule.per))


def _matches(rule: Limit) -> Column:
    """Return the condition for records that match the rule."""
    names = {code.name for code in rule.codes}
    codes = names | {rpc for rpc, behind in _RPCS.items() if names.intersection(behind)}
    conditions = [f.col("code").isin(*sorted(codes))]
    conditions += [condition(rule.match) for key, condition in _CONDITIONS.items() if getattr(rule.match, key)]
    return reduce(Column.__and__, conditions)


_CONDITIONS: Mapping[str, Callable[[Match], Column]] = {
    "protocols": lambda match: f.col("protocol").isin(*match.protocols),
    "networks": lambda match: any_network(f.col("address"), match.networks),
    "clients": lambda match: any_glob(f.col("client_id"), match.clients),
    "languages": lambda match: any_glob(f.lower("language"), (language.lower() for language in match.languages)),
    "version_from": lambda match: _version() >= numbers(f.lit(match.version_from)),
    "version_below": lambda match: _version() < numbers(f.lit(match.version_below)),
    "topics": lambda match: any_glob(f.col("topic"), match.topics),
    "groups": lambda match: any_glob(f.coalesce(f.col("group"), f.col("topic")), match.groups),
}


def _version() -> Column:
    return numbers(f.col("version"))
