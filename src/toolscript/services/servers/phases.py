"""The phases of the connection to a server."""

from __future__ import annotations

from enum import Enum, auto

from toolscript.domain.servers import ServerState


class Phase(Enum):
    """Where a connection is.

        CONNECTING ──connects──► LISTING ──is listed──► READY
         ▲  ▲   │                   │                     │
         │  │   └──fails──┐         ├──────goes away──────┤
         │  │             ▼         ▼                     │
         │  └──retries─ FAILED ◄── LOST                   │
         │                │                nobody uses it │ (or LISTING)
         │                ▼                               ▼
         └──is needed── ASLEEP ◄─────────────────────── UNUSED

    LOST and UNUSED last until the connection is closed. They go to CONNECTING at once when the server is restarted or
    needed, and CONNECTING goes to ASLEEP when an earlier run of the gateway has listed the server. Every phase goes to
    STOPPED, which goes to CONNECTING. Only in LISTING and READY is there a server that calls may use.
    """

    CONNECTING = auto()
    LISTING = auto()
    READY = auto()
    LOST = auto()
    UNUSED = auto()
    FAILED = auto()
    ASLEEP = auto()
    STOPPED = auto()

    @property
    def is_public(self) -> bool:
        """Whether it is a state that others see, and are told of."""
        return self.name in ServerState.__members__

    @property
    def state(self) -> ServerState:
        """What others see. A server sleeps once its process has ended."""
        if self.is_public:
            return ServerState[self.name]
        return ServerState.READY if self is Phase.UNUSED else ServerState.CONNECTING
