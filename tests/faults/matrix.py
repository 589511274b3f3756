"""The fault matrix: every row, what it injects, and the tests or the issue that answer for it.

A row with tests of its own in this folder names none here; it reports through the fixture `row`. Rows whose part is
proven by tests of another folder name them. Rows of parts that do not exist yet name the issue that builds them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One row: its fault in a few words, tests elsewhere that prove it, or the issue that will."""

    number: int
    fault: str
    elsewhere: tuple[str, ...] = ()
    issue: str = ""


_FAULTS = """
1 SIGKILL of a worker before the first spine write
2 SIGKILL after `started`, before the model request
3 SIGKILL during the model request
4 SIGKILL after the reply, before its checkpoint
5 SIGKILL after the checkpoint, before the read tool
6 SIGKILL between parallel tools
7 SIGKILL after the outcome was recorded, before effects are rung
8 SIGKILL after effect `started`, before the external call
9 SIGKILL after the external call, before `completed`
10 SIGKILL during a stop
11 SIGTERM in the middle of a turn
12 SIGSTOP for two leases, then SIGCONT
13 server restart, the last second of the AOF lost
14 failover to a replica with lost writes
15 server latency 500 ms, then a blackhole
16 server at maxmemory
17 evicting policy
18 the broker delivers a message five times
19 redelivery while the first still runs
20 reordered chat messages
21 poison message
22 a turn that kills its worker again and again
23 50 MB event, input, tool result
24 worker clocks five minutes off, both ways
25 two beats
26 beat down for three hours, 36 missed slots
27 clock change in a schedule's time zone
28 provider 429 with Retry-After
29 provider 500, 502, 503, 529, refused connection, TLS error
30 read timeout, half-open socket
31 answer cut in the middle of tool arguments
32 provider down for long
33 invalid structured output again and again
34 unknown tool, wrong arguments
35 tool exception, hang, huge result
36 the model loops on one call
37 model without a price, answer without usage
38 eight runs race for the last dollar
39 budget reached in the middle of a turn
40 coding agent hangs and ignores SIGTERM
41 coding agent forks daemons, holds pipes, leaves its session
42 coding agent fills the disk, links, devices
43 coding agent exceeds its turns or dollars
44 coding agent exits 0 with an error
45 handoff worker dies, its result comes late
46 disk full
47 configuration errors
48 contract edited or revoked in the middle of a turn
49 secrets in tool results, exceptions, URLs
50 instructions hidden in documents
51 steer, stop and answer at once, and in the finish window
52 two decisions at once, decision against expiry
53 the target or the proposal changed after it was shown
54 approval after a restart, and after its time
55 body expired before the resume
56 records of other formats
57 workers of two formats side by side
58 altered spine line
59 the same webhook again and later
60 one team floods
61 second asynchronous turn in one process
62 nobody reads the events
63 contracts in a circle
64 two contracts own one section
"""

RUNNER, SANDBOX, ENGINE = "tests/integration/runner/", "tests/integration/", "tests/unit/engine/"
ELSEWHERE: dict[int, tuple[str, ...]] = {
    23: (SANDBOX + "test_events.py::test_what_is_refused_leaves_no_key_behind",),
    40: (SANDBOX + "test_sandbox_run.py",),
    41: (SANDBOX + "test_sandbox_attacks.py", "tests/faults/test_sandbox_worker_killed.py"),
    42: (SANDBOX + "test_sandbox_attacks.py", SANDBOX + "test_sandbox_collect.py"),
    43: (RUNNER + "test_metering.py", RUNNER + "test_handoff_runs.py"),
    44: (RUNNER + "test_handoff_runs.py", "tests/unit/runner/test_endings.py"),
    45: (
        "tests/integration/test_handoffs.py::test_a_killed_handoff_worker_takes_its_agent_with_it_and_the_turn_goes_on",
        "tests/integration/test_handoffs.py::test_a_worker_that_leaves_hands_its_agent_back_as_interrupted",
        "tests/conformance/test_store_ledger.py",
    ),
    46: (SANDBOX + "test_documents_on_disk.py",),
}
"""Rows whose part has a room of its own: the tests there inject the fault for real and count it themselves. A row may have
tests in both places: the receiver of webhooks refuses what is too large where it is built."""
ISSUES: dict[int, str] = {}
"""Rows of parts that do not exist yet, and the issue that builds them."""


def rows() -> tuple[Row, ...]:
    """All 64, in order."""
    found = []
    for line in _FAULTS.strip().splitlines():
        number, _, fault = line.partition(" ")
        found.append(Row(int(number), fault, ELSEWHERE.get(int(number), ()), ISSUES.get(int(number), "")))
    return tuple(found)
