"""Protocol negotiation: one port for all protocols.

A `Listener` accepts connections, a `Negotiation` reads their first bytes (PROXY header, TLS, then `detect`), and the
transport is handed over to the protocol's handler together with the bytes read so far. Only `listener`, `connection`
and `rejection` do network I/O, and only `certificates` and the modules of TLS read files.
"""

from protocol_negotiation.advertised_address import (
    Advertise,
    AdvertiseRule,
    advertised,
    in_container,
    reachability_warning,
)
from protocol_negotiation.detect import PROTOCOLS, Detection, Match, Protocol, detect
from protocol_negotiation.listener import Handlers, Listener, ListenerOptions, OnOutcome
from protocol_negotiation.negotiation import Negotiation, Outcome
from protocol_negotiation.networks import Network, parse_network
from protocol_negotiation.peer import HostPort, Peer, Tls
from protocol_negotiation.proxy_protocol import ProxyHeader, ProxyProtocolError
from protocol_negotiation.rejection import Http1Rejector
from protocol_negotiation.tls import ClientAuth, Refresh, TlsError, TlsFiles, TlsMode, TlsSource, server_context

__all__ = [
    "PROTOCOLS",
    "Advertise",
    "AdvertiseRule",
    "ClientAuth",
    "Detection",
    "Handlers",
    "HostPort",
    "Http1Rejector",
    "Listener",
    "ListenerOptions",
    "Match",
    "Negotiation",
    "Network",
    "OnOutcome",
    "Outcome",
    "Peer",
    "Protocol",
    "ProxyHeader",
    "ProxyProtocolError",
    "Refresh",
    "Tls",
    "TlsError",
    "TlsFiles",
    "TlsMode",
    "TlsSource",
    "advertised",
    "detect",
    "in_container",
    "parse_network",
    "reachability_warning",
    "server_context",
]
