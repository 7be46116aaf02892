"""The table of incident kinds: one row for each kind.

Merging, wording, severity and the report read this table. A new kind is a member of `Kind`, a row, and a detector that
returns findings of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Kinds of findings and incidents, in the order of the table."""

    SERVICE_SILENCE = "service_silence"
    BROKER_SILENCE = "broker_silence"
    REPLICA_SILENCE = "replica_silence"
    NETWORK_SILENCE = "network_silence"
    CREDENTIALS = "credentials"
    MISSING_TOPIC = "missing_topic"
    MISSING_GROUP = "missing_group"
    THROTTLING = "throttling"
    BAD_ROLLOUT = "bad_rollout"
    CLIENT_CLOCK = "client_clock"
    HOT_KEY = "hot_key"
    LARGE_MESSAGES = "large_messages"
    DEAD_LETTERS = "dead_letters"
    REDELIVERY_STORM = "redelivery_storm"
    POISON_MESSAGE = "poison_message"
    BROKER_FAULT = "broker_fault"
    REPLICA_FAULT = "replica_fault"
    CONNECTION_CHURN = "connection_churn"
    CONNECTION_STORM = "connection_storm"
    ERROR_GROWTH = "error_growth"
    ERROR_BURST = "error_burst"
    DUPLICATE_SENDS = "duplicate_sends"
    TRAFFIC_GROWTH = "traffic_growth"
    TRAFFIC_SURGE = "traffic_surge"
    SILENCE = "silence"
    TRAFFIC_DROP = "traffic_drop"
    DUPLICATE_DELIVERIES = "duplicate_deliveries"
    CONSUMER_REWINDING = "consumer_rewinding"
    CONSUMER_STOPPED = "consumer_stopped"
    CLIENT_STOPPED = "client_stopped"
    QUEUE_STOPPED = "queue_stopped"
    COMMITS_STOPPED = "commits_stopped"
    CONSUMER_LAGGING = "consumer_lagging"
    LATENCY_GROWTH = "latency_growth"
    LATENCY_SPIKE = "latency_spike"
    QUEUE_SKEW = "queue_skew"


class Family(StrEnum):
    """Detectors of which two findings have different causes, unless they have one kind and one subject, or an earlier
    rule of `relations.py` relates them.
    """

    FAILURES = "failures"
    SLOWNESS = "slowness"
    VOLUME = "volume"
    CONNECTIONS = "connections"


@dataclass(frozen=True, slots=True)
class KindSpec:
    """One row of the table.

    Attributes:
        happened: the sentence, with {subject}, {observed}, {expected}, {affected}, {trouble} ("failed" or "were slow")
            and the facts of the finding.
        advice: the sentence that says what to do.
        family: the detector, if two of its findings usually have different causes.
        own_cause: whether no fault of a broker, a replica or a network causes it.
        silence: whether all requests of the service, an address range, a replica or a broker stay away.
        follows_silence: whether requests that stay away cause it: in a silence, if both begin and end together, and
            when requests of its subject are refused, from the same time on.
        herd: whether clients that come back after a silence of the whole service cause it.
        refusal: whether requests are refused because of a name or a permission; then they stop, or are sent again.
        leaves_backlog: whether a group has messages to catch up with afterwards.
        outage: whether a service stops for some of its clients; few affected requests make it severe.
        gain: whether a topic or a tenant gets more than usual.
        zone: whether the address ranges of a zone may have it together.
        unit: the noun for the affected number.
        client_advice: the advice if a single client is concerned; "" for none of its own.
    """

    kind: Kind
    happened: str
    advice: str
    family: Family | None = None
    own_cause: bool = False
    silence: bool = False
    follows_silence: bool = False
    herd: bool = False
    refusal: bool = False
    leaves_backlog: bool = False
    outage: bool = False
    gain: bool = False
    zone: bool = False
    unit: str = "requests"
    client_advice: str = ""


_ONE_CLIENT = (
    "Look at this client first: its log, garbage collection, load and network; others of its topic are not concerned."
)

# A kind that names a cause comes before the kinds that follow from it.
_ROWS = (
    KindSpec(
        Kind.SERVICE_SILENCE,
        "Nobody sent any request, where at least {expected:,.0f} are usual.",
        "Check whether Gantry ran, was reachable (load balancer, DNS, certificates) and wrote its records.",
        silence=True,
        outage=True,
        unit="requests missing",
    ),
    KindSpec(
        Kind.BROKER_SILENCE,
        "No request went to {subject}, where at least {expected:,.0f} are usual; other brokers were used.",
        "Check whether the broker runs and is registered with the name servers.",
        silence=True,
        outage=True,
        unit="requests missing",
    ),
    KindSpec(
        Kind.REPLICA_SILENCE,
        "{subject} got no requests, where at least {expected:,.0f} are usual; it was not drained.",
        "Check whether the replica runs, and whether the load balancer sends clients to it.",
        silence=True,
        unit="requests missing",
    ),
    KindSpec(
        Kind.NETWORK_SILENCE,
        "No request came from {subject}, where at least {expected:,.0f} are usual; other ranges went on.",
        "Check the network of these addresses: the zone or site, its route to Gantry, firewalls, DNS.",
        silence=True,
        outage=True,
        zone=True,
        unit="requests missing",
    ),
    KindSpec(
        Kind.CREDENTIALS,
        "{affected} requests of {subject} were refused: {response}.",
        "Renew the client's credentials or restore its permission; look for a key or token that expired at the onset.",
        family=Family.FAILURES,
        own_cause=True,
        refusal=True,
        outage=True,
    ),
    KindSpec(
        Kind.MISSING_TOPIC,
        "{affected} requests for {subject} failed: {response}.",
        "Create the topic again, or correct the name in the clients; look for a deletion at the onset.",
        family=Family.FAILURES,
        own_cause=True,
        refusal=True,
        outage=True,
    ),
    KindSpec(
        Kind.MISSING_GROUP,
        "{affected} requests of {subject} failed: {response}.",
        "Create the consumer group again, or correct its name in the clients.",
        family=Family.FAILURES,
        own_cause=True,
        refusal=True,
    ),
    KindSpec(
        Kind.THROTTLING,
        "{affected} requests of {subject} were rejected by a limit: {response}.",
        "Compare the limit with the traffic: raise it, spread the load, or slow the producers down.",
        family=Family.FAILURES,
        herd=True,
    ),
    KindSpec(
        Kind.BAD_ROLLOUT,
        "Since it was rolled out, {subject} has {observed:.1%} failed or slow requests; others have {expected:.1%}.",
        "Stop the roll-out and return to the former version; compare the two on the same topics.",
    ),
    KindSpec(
        Kind.CLIENT_CLOCK,
        "{affected} scheduled messages of {subject} have delays unlike all others of their topics.",
        "Check the client's clock (NTP), and that it states delivery times in milliseconds.",
        family=Family.CONNECTIONS,
        own_cause=True,
    ),
    KindSpec(
        Kind.HOT_KEY,
        "One key has {observed:.0%} of the messages of {subject} (usually {expected:.1%}).",
        "Find the sender of this key; split it, or let its messages go to other queues if their order does not matter.",
        own_cause=True,
        unit="messages",
    ),
    KindSpec(
        Kind.LARGE_MESSAGES,
        "{affected} messages to {subject} had {size} on average (usually {usual}); the default limit is 4 MiB.",
        "Ask the sender what changed in the body; compress it or send a reference, before brokers refuse the messages.",
        own_cause=True,
        unit="messages",
    ),
    KindSpec(
        Kind.DEAD_LETTERS,
        "{affected} messages of {subject} became dead letters.",
        "Correct the consumer, then send the dead letters again; none is lost yet.",
        outage=True,
        unit="messages",
    ),
    KindSpec(
        Kind.REDELIVERY_STORM,
        "{observed:.0%} of the messages of {subject} were redelivered (usually {expected:.1%}).",
        "Look at the consumers' errors: a message that cannot be processed, or work beyond the invisible duration.",
        unit="messages",
    ),
    KindSpec(
        Kind.POISON_MESSAGE,
        "Messages of {subject} were delivered for the sixth time or later {affected} times: they always fail.",
        "Find the message that the consumer cannot process (see its log); let it become a dead letter, then fix it.",
        unit="messages",
    ),
    KindSpec(
        Kind.BROKER_FAULT,
        "{observed:.0%} of the requests to {subject} failed (usually {expected:.1%}): {response}.",
        "Check the broker's process, disk and replication; move its traffic to other brokers until it recovers.",
        family=Family.FAILURES,
        outage=True,
    ),
    KindSpec(
        Kind.REPLICA_FAULT,
        "{observed:.0%} of the requests at {subject} {trouble} (usually {expected:.1%}), at others not.",
        "Compare this replica's configuration and version with the others; drain it and restart it.",
        family=Family.FAILURES,
    ),
    KindSpec(
        Kind.CONNECTION_CHURN,
        "{subject} connected {affected} times: it does not keep its connection.",
        "Create one producer or consumer for the process, not one for each request.",
        family=Family.CONNECTIONS,
        unit="connections",
    ),
    KindSpec(
        Kind.CONNECTION_STORM,
        "{affected} connections of {subject} ended abnormally ({cause}).",
        "Check the network path of these addresses: load balancers, firewalls, idle timeouts, hosts that failed.",
        family=Family.CONNECTIONS,
        follows_silence=True,
        herd=True,
        zone=True,
        unit="connections",
    ),
    KindSpec(
        Kind.ERROR_GROWTH,
        "More and more requests of {subject} failed, {observed:.0%} on average (usually {expected:.1%}): {response}.",
        "Find what fills up or leaks since the onset: disk, memory, connections, a queue of the service behind.",
        family=Family.FAILURES,
        zone=True,
        client_advice=_ONE_CLIENT,
    ),
    KindSpec(
        Kind.ERROR_BURST,
        "{observed:.0%} of the requests of {subject} failed (usually {expected:.1%}): {response}.",
        "Look at the response code and the broker's log at the onset.",
        family=Family.FAILURES,
        zone=True,
        client_advice=_ONE_CLIENT,
    ),
    KindSpec(
        Kind.DUPLICATE_SENDS,
        "{observed:.0%} of the messages sent to {subject} repeat one of the same minute (usually {expected:.1%}).",
        "Look for retries at the producer: it sends again what is late. Raise its timeout; consumers get both of them.",
        unit="messages",
    ),
    KindSpec(
        Kind.TRAFFIC_GROWTH,
        "Traffic of {subject} grows: {observed:,.0f} requests, where at most {expected:,.0f} are usual at these times.",
        "Find the sender that grows; plan capacity, or limit it, before consumers fall behind.",
        family=Family.VOLUME,
        gain=True,
    ),
    KindSpec(
        Kind.TRAFFIC_SURGE,
        "{observed:,.0f} requests were sent to {subject}, where at most {expected:,.0f} are usual at this time.",
        "Ask the sender; limit its rate if others suffer, and add consumers until the backlog is gone.",
        family=Family.VOLUME,
        herd=True,
        gain=True,
    ),
    KindSpec(
        Kind.SILENCE,
        "Nothing was sent to {subject} any more, where at least {expected:,.0f} messages are usual.",
        "Check whether the producers run and reach Gantry; look at their last errors.",
        family=Family.VOLUME,
        follows_silence=True,
        outage=True,
        unit="requests missing",
    ),
    KindSpec(
        Kind.TRAFFIC_DROP,
        "{subject} got {observed:,.0f} messages, where at least {expected:,.0f} are usual at this time.",
        "Check the producers and what they wait for.",
        family=Family.VOLUME,
        follows_silence=True,
        unit="requests missing",
    ),
    KindSpec(
        Kind.DUPLICATE_DELIVERIES,
        "{subject} took every message {times} times: {observed:,.0f} where {expected:,.0f} were due.",
        "Look for consumers that share no queues: broadcasting, equal client ids, or a rebalance that never ends.",
        unit="messages",
    ),
    KindSpec(
        Kind.CONSUMER_REWINDING,
        "{subject} took {observed:,.0f} messages where {expected:,.0f} were due: it consumes old messages again.",
        "Look for a reset of offsets or a lost offset; check that processing twice is harmless.",
        unit="messages",
    ),
    KindSpec(
        Kind.CONSUMER_STOPPED,
        "{subject} took {observed:,.0f} of {expected:,.0f} messages; {backlog} wait.",
        "Check whether the group's consumers run, hang, or are registered with the right subscription; restart them.",
        follows_silence=True,
        leaves_backlog=True,
        outage=True,
        unit="messages",
    ),
    KindSpec(
        Kind.CLIENT_STOPPED,
        "{subject} stopped: {observed:,.0f} of {expected:,.0f} deliveries, and nobody took over its messages.",
        "Restart this consumer; take a thread dump first.",
        follows_silence=True,
        leaves_backlog=True,
        outage=True,
        unit="messages",
    ),
    KindSpec(
        Kind.QUEUE_STOPPED,
        "{subject} was not consumed: {observed:,.0f} of {expected:,.0f} deliveries; other queues were.",
        "Find the consumer that owns the queue and restart it; check the queue's lock if it is ordered.",
        follows_silence=True,
        leaves_backlog=True,
        unit="messages",
    ),
    KindSpec(
        Kind.COMMITS_STOPPED,
        "The offset of {subject} was not committed, {observed:,.0f} of {expected:,.0f} times; messages were delivered.",
        "Look for a message that never finishes at the consumer; a restart now would deliver all of them again.",
        follows_silence=True,
        unit="commits missing",
    ),
    KindSpec(
        Kind.CONSUMER_LAGGING,
        "{subject} took only {observed:,.0f} of {expected:,.0f} messages; {backlog} wait.",
        "Find what slows the consumers down; add consumers, up to the number of queues.",
        follows_silence=True,
        leaves_backlog=True,
        unit="messages",
    ),
    KindSpec(
        Kind.LATENCY_GROWTH,
        "Requests of {subject} became slower and slower; {observed:.0%} were slow (usually {expected:.1%}).",
        "Find what grows since the onset: load, backlog, disk use, number of connections.",
        family=Family.SLOWNESS,
        zone=True,
        client_advice=_ONE_CLIENT,
    ),
    KindSpec(
        Kind.LATENCY_SPIKE,
        "{observed:.0%} of the requests of {subject} were slow (usually {expected:.1%}).",
        "Check disk and load of the broker, and the size of messages, at the onset.",
        family=Family.SLOWNESS,
        zone=True,
        client_advice=_ONE_CLIENT,
    ),
    KindSpec(
        Kind.QUEUE_SKEW,
        "{subject} gets {observed:,.0f} messages where {expected:,.0f} are usual.",
        "Look for a key or a queue selector that sends everything to one queue.",
        unit="messages",
    ),
)
KINDS: Mapping[Kind, KindSpec] = {row.kind: row for row in _ROWS}
_RANKS = {kind: place for place, kind in enumerate(KINDS)}


def rank(kind: Kind) -> int:
    """Return the place of a kind in the table."""
    return _RANKS[kind]
