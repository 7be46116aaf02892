"""Sessions of browsers: a cookie that stands for the credential with which the session was opened."""

import hashlib
import hmac
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

COOKIE = "gantry_session"
# The header with which pages of this origin prove that a write is theirs.
CSRF_HEADER = "x-csrf-token"
# Seconds after the last request, and after the start, at which a session ends.
IDLE = 3_600.0
MAX_AGE = 12 * 3_600.0
# Sessions at the same time, of each caller and of all. If there are more, the oldest of the caller with most ends.
_MAX_OWN_SESSIONS = 50
_MAX_SESSIONS = 1_000


@dataclass(slots=True)
class Session:
    """An open session.

    caller: the name of its caller; authorization: the header that it stands for, which is checked again with every
    request.
    """

    caller: str
    authorization: str
    csrf: str
    opened_at: float
    used_at: float


class Sessions:
    """The sessions of this process, by a hash of their ids."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # The oldest first.
        self._sessions: dict[str, Session] = {}

    def open(self, caller: str, authorization: str) -> tuple[str, Session]:
        """Return the id of a new session, and the session."""
        self._make_room(caller)
        now = self._clock()
        session_id = secrets.token_urlsafe(32)
        session = Session(caller, authorization, secrets.token_urlsafe(32), now, now)
        self._sessions[_digest(session_id)] = session
        return session_id, session

    def find(self, headers: Mapping[str, str], *, use: bool = True) -> Session | None:
        """Return the session of a request's cookie; None if there is none, or if it has ended.

        use: whether the request is a new one, which postpones the session's end.
        """
        session_id = session_id_of(headers)
        session = None if session_id is None else self._sessions.get(_digest(session_id))
        if session is None or self._has_ended(session):
            return None
        if use:
            session.used_at = self._clock()
        return session

    def close(self, headers: Mapping[str, str]) -> None:
        """End the session of a request's cookie."""
        session_id = session_id_of(headers)
        if session_id is not None:
            self._sessions.pop(_digest(session_id), None)

    def _has_ended(self, session: Session) -> bool:
        now = self._clock()
        return now - session.used_at > IDLE or now - session.opened_at > MAX_AGE

    def _make_room(self, caller: str) -> None:
        """Drop ended sessions, and one more if there are too many."""
        self._sessions = {key: session for key, session in self._sessions.items() if not self._has_ended(session)}
        counts = Counter(session.caller for session in self._sessions.values())
        if counts[caller] >= _MAX_OWN_SESSIONS:
            self._drop_oldest(caller)
        elif len(self._sessions) >= _MAX_SESSIONS:
            self._drop_oldest(counts.most_common(1)[0][0])

    def _drop_oldest(self, caller: str) -> None:
        del self._sessions[next(key for key, session in self._sessions.items() if session.caller == caller)]


def is_own(session: Session, headers: Mapping[str, str]) -> bool:
    """Return whether a request has the session's CSRF token."""
    return hmac.compare_digest(headers.get(CSRF_HEADER, "").encode(), session.csrf.encode())


def session_id_of(headers: Mapping[str, str]) -> str | None:
    """Return the id in a request's cookie."""
    for part in headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE and value:
            return value
    return None


def set_cookie(session_id: str, secure: bool) -> str:
    """Return the Set-Cookie header that begins a session; an empty id ends it."""
    age = f"; Max-Age={int(MAX_AGE)}" if session_id else "; Max-Age=0"
    return f"{COOKIE}={session_id}; Path=/; HttpOnly; SameSite=Strict{age}{'; Secure' if secure else ''}"


def _digest(session_id: str) -> str:
    return hashlib.sha256(session_id.encode("utf-8", "surrogateescape")).hexdigest()
