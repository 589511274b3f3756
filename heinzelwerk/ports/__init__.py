"""The seams of the core: one small Protocol per kind of I/O, and the frozen bundle of them that travels down the path.

Each port has a real body and a double that passes the same suite under tests/conformance.
"""

from heinzelwerk.ports.outside import Capability, Channel, Messenger, Placement, Publisher, Runner, TargetView
from heinzelwerk.ports.process import Bell, Clock, Held, Ids, Interrupt, Keeper
from heinzelwerk.ports.store import Store
from heinzelwerk.ports.works import Engine, Policy, Works

__all__ = [
    "Bell",
    "Capability",
    "Channel",
    "Clock",
    "Engine",
    "Held",
    "Ids",
    "Interrupt",
    "Keeper",
    "Messenger",
    "Placement",
    "Policy",
    "Publisher",
    "Runner",
    "Store",
    "TargetView",
    "Works",
]
