"""The API server's view of the one simulation session: its name and when it was last heard of."""

from __future__ import annotations

import secrets
import time


class Sessions:
    """At most one session is open. Real time, since it is about a client that may have died."""

    def __init__(self) -> None:
        self.current: str | None = None
        self._heard_s = 0.0
        self._taken: set[int] = set()
        self.waiting = 0
        """Calls of the client that are being answered now; while there is one, it is alive."""

    def new_name(self) -> str:
        """A name that nobody can guess."""
        return secrets.token_urlsafe(16)

    def opened(self, name: str) -> None:
        """The engine has opened the session."""
        self.current = name
        self._taken.clear()
        self.heard()

    def take(self, seq: int) -> bool:
        """A request of the session has this sequence number; False where one had it before."""
        known = len(self._taken)
        self._taken.add(seq)
        return len(self._taken) > known

    def closed(self) -> None:
        """The engine has closed it."""
        self.current = None

    def heard(self) -> None:
        """The client has just been heard of."""
        self._heard_s = time.monotonic()

    def silent_s(self) -> float:
        """Seconds since the client was heard of; 0 where a call of it is being answered."""
        return 0.0 if self.waiting else time.monotonic() - self._heard_s


SESSIONS = Sessions()
"""One API server process serves one engine, which has one session."""
