"""Sentences of incidents: the event, and advice."""

from collections.abc import Mapping
from dataclasses import dataclass

from analytics.incidents.finding import Finding


@dataclass(frozen=True, slots=True)
class Words:
    """happened: with {subject}, {observed}, {expected}, {affected} and the facts of the finding. advice: as it is."""

    happened: str
    advice: str


WORDS: Mapping[str, Words] = {
    "credentials": Words(
        "{affected} requests of {subject} were refused: {response}.",
        "Renew the client's credentials or restore its permission; look for a key or token that expired at the onset.",
    ),
    "missing_topic": Words(
        "{affected} requests for {subject} failed: {response}.",
        "Create the topic again, or correct the name in the clients; look for a deletion at the onset.",
    ),
    "missing_group": Words(
        "{affected} requests of {subject} failed: {response}.",
        "Create the consumer group again, or correct its name in the clients.",
    ),
    "throttling": Words(
        "{affected} requests of {subject} were rejected by a limit: {response}.",
        "Compare the limit with the traffic: raise it, spread the load, or slow the producers down.",
    ),
    "broker_fault": Words(
        "{observed:.0%} of the requests to {subject} failed (usually {expected:.1%}): {response}.",
        "Check the broker's process, disk and replication; move its traffic to other brokers until it recovers.",
    ),
    "replica_fault": Words(
        "{observed:.0%} of the requests at {subject} failed or were slow (usually {expected:.1%}), at others not.",
        "Compare this replica's configuration and version with the others; drain it and restart it.",
    ),
    "bad_rollout": Words(
        "Since it was rolled out, {subject} has {observed:.1%} failed or slow requests; others have {expected:.1%}.",
        "Stop the roll-out and return to the former version; compare the two on the same topics.",
    ),
    "error_burst": Words(
        "{observed:.0%} of the requests of {subject} failed (usually {expected:.1%}): {response}.",
        "Look at the response code and the broker's log at the onset.",
    ),
    "error_growth": Words(
        "More and more requests of {subject} failed, {observed:.0%} on average (usually {expected:.1%}): {response}.",
        "Find what fills up or leaks since the onset: disk, memory, connections, a queue of the service behind.",
    ),
    "latency_spike": Words(
        "{observed:.0%} of the requests of {subject} were slow (usually {expected:.1%}).",
        "Check disk and load of the broker, and the size of messages, at the onset.",
    ),
    "latency_growth": Words(
        "Requests of {subject} became slower and slower; {observed:.0%} were slow (usually {expected:.1%}).",
        "Find what grows since the onset: load, backlog, disk use, number of connections.",
    ),
    "redelivery_storm": Words(
        "{observed:.0%} of the messages of {subject} were redelivered (usually {expected:.1%}).",
        "Look at the consumers' errors: a message that cannot be processed, or work beyond the invisible duration.",
    ),
    "dead_letters": Words(
        "{affected} messages of {subject} became dead letters.",
        "Correct the consumer, then send the dead letters again; none is lost yet.",
    ),
    "poison_message": Words(
        "Messages of {subject} were delivered for the sixth time or later {affected} times: they always fail.",
        "Find the message that the consumer cannot process (see its log); let it become a dead letter, then fix it.",
    ),
    "duplicate_sends": Words(
        "{observed:.0%} of the messages sent to {subject} repeat one of the same minute (usually {expected:.1%}).",
        "Look for retries at the producer: it sends again what is late. Raise its timeout; consumers get both of them.",
    ),
    "large_messages": Words(
        "{affected} messages to {subject} had {size} on average (usually {usual}); the default limit is 4 MiB.",
        "Ask the sender what changed in the body; compress it or send a reference, before brokers refuse the messages.",
    ),
    "client_clock": Words(
        "{affected} scheduled messages of {subject} have delays unlike all others of their topics.",
        "Check the client's clock (NTP), and that it states delivery times in milliseconds.",
    ),
    "hot_key": Words(
        "One key has {observed:.0%} of the messages of {subject} (usually {expected:.1%}).",
        "Find the sender of this key; split it, or let its messages go to other queues if their order does not matter.",
    ),
    "queue_skew": Words(
        "{subject} gets {observed:,.0f} messages where {expected:,.0f} are usual.",
        "Look for a key or a queue selector that sends everything to one queue.",
    ),
    "traffic_surge": Words(
        "{observed:,.0f} requests were sent to {subject}, where at most {expected:,.0f} are usual at this time.",
        "Ask the sender; limit its rate if others suffer, and add consumers until the backlog is gone.",
    ),
    "traffic_growth": Words(
        "Traffic of {subject} grows: {observed:,.0f} requests, where at most {expected:,.0f} are usual at these times.",
        "Find the sender that grows; plan capacity, or limit it, before consumers fall behind.",
    ),
    "traffic_drop": Words(
        "{subject} got {observed:,.0f} messages, where at least {expected:,.0f} are usual at this time.",
        "Check the producers and what they wait for.",
    ),
    "silence": Words(
        "Nothing was sent to {subject} any more, where at least {expected:,.0f} messages are usual.",
        "Check whether the producers run and reach Gantry; look at their last errors.",
    ),
    "service_silence": Words(
        "Nobody sent any request, where at least {expected:,.0f} are usual.",
        "Check whether Gantry ran, was reachable (load balancer, DNS, certificates) and wrote its records.",
    ),
    "network_silence": Words(
        "No request came from {subject}, where at least {expected:,.0f} are usual; other ranges went on.",
        "Check the network of these addresses: the zone or site, its route to Gantry, firewalls, DNS.",
    ),
    "replica_silence": Words(
        "{subject} got no requests, where at least {expected:,.0f} are usual; it was not drained.",
        "Check whether the replica runs, and whether the load balancer sends clients to it.",
    ),
    "broker_silence": Words(
        "No request went to {subject}, where at least {expected:,.0f} are usual; other brokers were used.",
        "Check whether the broker runs and is registered with the name servers.",
    ),
    "consumer_stopped": Words(
        "{subject} took {observed:,.0f} of {expected:,.0f} messages; {backlog} wait.",
        "Check whether the group's consumers run, hang, or are registered with the right subscription; restart them.",
    ),
    "consumer_lagging": Words(
        "{subject} took only {observed:,.0f} of {expected:,.0f} messages; {backlog} wait.",
        "Find what slows the consumers down; add consumers, up to the number of queues.",
    ),
    "consumer_rewinding": Words(
        "{subject} took {observed:,.0f} messages where {expected:,.0f} were due: it consumes old messages again.",
        "Look for a reset of offsets or a lost offset; check that processing twice is harmless.",
    ),
    "duplicate_deliveries": Words(
        "{subject} took every message {times} times: {observed:,.0f} where {expected:,.0f} were due.",
        "Look for consumers that share no queues: broadcasting, equal client ids, or a rebalance that never ends.",
    ),
    "queue_stopped": Words(
        "{subject} was not consumed: {observed:,.0f} of {expected:,.0f} deliveries; other queues were.",
        "Find the consumer that owns the queue and restart it; check the queue's lock if it is ordered.",
    ),
    "commits_stopped": Words(
        "The offset of {subject} was not committed, {observed:,.0f} of {expected:,.0f} times; messages were delivered.",
        "Look for a message that never finishes at the consumer; a restart now would deliver all of them again.",
    ),
    "client_stopped": Words(
        "{subject} stopped: {observed:,.0f} of {expected:,.0f} deliveries, and nobody took over its messages.",
        "Restart this consumer; take a thread dump first.",
    ),
    "connection_storm": Words(
        "{affected} connections of {subject} ended abnormally ({cause}).",
        "Check the network path of these addresses: load balancers, firewalls, idle timeouts, hosts that failed.",
    ),
    "connection_churn": Words(
        "{subject} connected {affected} times: it does not keep its connection.",
        "Create one producer or consumer for the process, not one for each request.",
    ),
}
# Advice where a single client is concerned, and others of its topic are not.
_ONE_CLIENT = (
    "Look at this client first: its log, garbage collection, load and network; others of its topic are not concerned."
)
_OF_CLIENTS: Mapping[str, str] = dict.fromkeys(
    ("error_burst", "error_growth", "latency_spike", "latency_growth"), _ONE_CLIENT
)
_NAMES = {"sdk": "version", "network": "addresses"}
_ORDER = ("client", "queue", "group", "topic", "broker", "replica", "sdk", "network", "tenant")


def subject(finding: Finding) -> str:
    """Return the subject in words, the narrowest attribute first; a scope without attributes is the whole service."""
    if finding.kind == "bad_rollout":
        return f"version {finding.about['version']}"
    scope = finding.facts.get("scope")
    names = scope.split("+") if scope else [name for name in _ORDER if name in finding.about]
    names = [name for name in names if name in finding.about] or list(finding.about)
    if "queue" in names:
        # A queue is one of a broker.
        where = f"queue {finding.about['queue']} of broker {finding.about.get('broker')}"
        rest = [name for name in names if name in ("group", "topic")]
        return ", ".join([where, *(f"{name} {finding.about[name]}" for name in rest)])
    if scope == "":
        return "the whole service"
    return ", ".join(f"{_NAMES.get(name, name)} {finding.about[name]}" for name in names)


def sentences(finding: Finding) -> Words:
    """Return the sentences of an incident that this finding names."""
    words = WORDS[finding.kind]
    happened = words.happened.format(
        subject=subject(finding),
        observed=finding.observed,
        expected=finding.expected,
        affected=f"{finding.affected:,.0f}",
        **{name: value for name, value in finding.facts.items() if name != "scope"},
    )
    of_client = _OF_CLIENTS.get(finding.kind) if finding.facts.get("scope") == "client" else None
    return Words(happened[0].upper() + happened[1:], of_client or words.advice)
