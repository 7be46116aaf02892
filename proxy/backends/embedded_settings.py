"""The settings of the embedded broker and of its store, by those of the replica."""

import math
import socket

from protocol_negotiation.peer import HostPort
from proxy.embedded.broker.settings import BrokerSettings
from proxy.embedded.store.options import StoreOptions, SyncPolicy
from proxy.settings.embedded import EmbeddedSettings
from proxy.settings.listen import ListenSettings
from proxy.settings.model import Settings

# The broker's address if clients have no TCP address to reach it by.
_NO_ADDRESS = HostPort("127.0.0.1", 10911)
_LOOPBACK = "127.0.0.1"


def store_options(settings: EmbeddedSettings) -> StoreOptions:
    """Return the options of the store."""
    return StoreOptions(
        sync=SyncPolicy(settings.sync),
        sync_interval=_milliseconds(settings.sync_interval),
        segment_size=settings.segment_size,
        reserve=settings.reserve,
        retention_size=settings.retention_size,
        retention_time=_milliseconds(settings.retention_time) or None,
        rebuild=settings.rebuild,
    )


def broker_settings(settings: EmbeddedSettings, address: HostPort) -> BrokerSettings:
    """Return the settings of the broker; `address` is the one in its routes and message ids."""
    return BrokerSettings(
        name=settings.name,
        cluster=settings.cluster,
        host=address.host,
        port=address.port,
        auto_create_topics=settings.auto_create_topics,
        auto_create_groups=settings.auto_create_groups,
        max_topics=settings.max_topics,
        max_groups=settings.max_groups,
        max_offsets=settings.max_offsets,
        creations_per_client=settings.creations_per_client,
        creations_per_address=settings.creations_per_address,
        default_queues=settings.queues,
        max_message_size=settings.max_message,
        # A message that is deleted before it is due would be lost.
        max_delay=_milliseconds(min(settings.max_delay, settings.retention_time or math.inf)),
        transaction_timeout=_milliseconds(settings.transaction_timeout),
        transaction_interval=_milliseconds(settings.transaction_interval),
        transaction_checks=settings.transaction_checks,
    )


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def broker_address(settings: Settings) -> HostPort:
    """Return the address in the broker's routes and message ids, at which clients must be able to reach it."""
    embedded = settings.embedded
    if embedded.advertise is not None:
        return HostPort.parse(embedded.advertise)
    if embedded.listen is not None:
        return _reachable(HostPort.parse(embedded.listen))
    listeners = (HostPort.parse(item.address) for item in settings.listen if _serves_all_brokers(item))
    return next(map(_reachable, listeners), _NO_ADDRESS)


def _serves_all_brokers(item: ListenSettings) -> bool:
    return item.broker is None and not item.address.startswith("unix:")


def _reachable(address: HostPort) -> HostPort:
    """Return an IP address at which clients reach this listener; message ids only hold IP addresses."""
    name = socket.gethostname() if address.is_wildcard else address.host
    if HostPort(name, 0).ip is not None:
        return address
    try:
        return HostPort(socket.gethostbyname(name), address.port)
    except OSError:
        return HostPort(_LOOPBACK, address.port)
