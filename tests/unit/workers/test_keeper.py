"""The keeper: renews while the process can work, and stops holders before somebody else may hold what they hold."""

from dataclasses import dataclass, field

from heinzelwerk.errors import StoreUnavailable
from heinzelwerk.ids import SessionId
from heinzelwerk.mail import Mail, MailKind
from heinzelwerk.ports import Interrupt
from heinzelwerk.session import Hold
from workers.keeper import LeaseKeeper

LEASE = 15.0


@dataclass
class Holder:
    hold: Hold
    told: list[Interrupt] = field(default_factory=list)
    running: int | None = None

    def interrupt(self, why):
        self.told.append(why)


class Renewals:
    """A renewer that answers as the test says."""

    def __init__(self):
        self.asked: list[list[str]] = []
        self.lost: tuple[Hold, ...] = ()
        self.away = False
        self.closed = False

    def renew(self, holds):
        self.asked.append(sorted(hold.token for hold in holds))
        if self.away:
            raise StoreUnavailable("away")
        return tuple(hold for hold in holds if hold in self.lost)

    def close(self):
        self.closed = True


class World:
    def __init__(self, longest=600.0):
        self.now = 100.0
        self.lag = 0.0
        self.renewals = Renewals()
        self.keeper = LeaseKeeper(
            self.renewals,
            lease_s=LEASE,
            longest_s=longest,
            late_s=5.0,
            lag_s=lambda: self.lag,
            monotonic=lambda: self.now,
        )

    def hold(self, name="page", kind="session"):
        holder = Holder(Hold(kind, "crew", name, f"token-{name}"))
        self.keeper.keep(holder)
        return holder

    def pass_(self, seconds, *, step=0.5):
        until = self.now + seconds
        while self.now < until:
            self.now += step
            self.keeper.look()


def test_all_leases_are_renewed_together_every_third():
    """One request for all, five seconds apart for a lease of fifteen."""
    world = World()
    holders = world.hold("a"), world.hold("b", kind="job")
    world.pass_(16.0)
    assert world.renewals.asked == [["token-a", "token-b"]] * 3
    assert [holder.told for holder in holders] == [[], []]


def test_a_lease_that_another_took_stops_its_holder_alone():
    """The store's word is final: that holder stops, the others go on."""
    world = World()
    lost, kept = world.hold("a"), world.hold("b")
    world.renewals.lost = (lost.hold,)
    world.pass_(11.0)
    assert lost.told == [Interrupt.LOST]
    assert kept.told == []
    assert world.renewals.asked == [["token-a", "token-b"], ["token-b"]]


def test_without_the_store_holders_stop_before_the_lease_ends():
    """Twelve of fifteen seconds without a renewal, and everything stops; nothing is renewed afterwards."""
    world = World()
    holder = world.hold()
    world.renewals.away = True
    world.pass_(11.5)
    assert holder.told == []
    world.pass_(0.5)
    assert holder.told == [Interrupt.LOST]
    world.renewals.away = False
    world.pass_(10.0)
    assert holder.told == [Interrupt.LOST]
    assert world.keeper.holding() == ()


def test_a_holder_that_cannot_be_told_keeps_nobody_from_being_told():
    """An interrupt that raises is logged; the next holder is interrupted all the same."""
    world = World()
    deaf, other = world.hold("a"), world.hold("b")
    deaf.interrupt = lambda why: (_ for _ in ()).throw(RuntimeError("loop closed"))
    world.renewals.away = True
    world.pass_(13.0)
    assert other.told == [Interrupt.LOST]
    assert world.keeper.holding() == ()


def test_a_store_that_comes_back_in_time_is_enough():
    """An outage shorter than the lease costs nothing."""
    world = World()
    holder = world.hold()
    world.renewals.away = True
    world.pass_(8.0)
    world.renewals.away = False
    world.pass_(20.0)
    assert holder.told == []


def test_a_loop_that_does_not_tick_renews_nothing():
    """A process that cannot work does not keep its work from others."""
    world = World()
    holder = world.hold()
    world.lag = 5.0
    world.pass_(11.5)
    assert world.renewals.asked == []
    world.pass_(0.5)
    assert holder.told == [Interrupt.LOST]


def test_a_process_that_slept_through_its_lease_stops_before_it_renews():
    """After SIGCONT the first look stops the run; a renewal would come too late."""
    world = World()
    holder = world.hold()
    world.now += 40.0
    world.keeper.look()
    assert holder.told == [Interrupt.LOST]
    assert world.renewals.asked == []


def test_a_segment_that_outlives_its_time_is_not_renewed():
    """The longest turn and two minutes; then the lease runs out, whatever hangs."""
    world = World(longest=30.0)
    holder = world.hold()
    world.pass_(149.5)
    assert holder.told == []
    world.pass_(15.0)
    assert holder.told == [Interrupt.LOST]


def test_who_leaves_asks_for_everything_back():
    """At the end of a process holders hand back at their next checkpoint; those that come late too."""
    world = World()
    early = world.hold("a")
    world.keeper.leave()
    late = world.hold("b")
    assert early.told == late.told == [Interrupt.HAND_BACK]
    assert world.keeper.leaving
    world.pass_(6.0)
    assert world.renewals.asked == [["token-a", "token-b"]]


def test_a_forgotten_lease_is_not_renewed():
    """After the end of a segment nothing is kept."""
    world = World()
    holder = world.hold()
    world.keeper.forget(holder)
    world.keeper.forget(holder)
    world.pass_(20.0)
    assert world.renewals.asked == []


class Urgent:
    def __init__(self, mail):
        self.mail = mail

    async def urgent(self, sessions):
        return dict.fromkeys(sessions, self.mail)


async def test_a_stop_interrupts_the_turn_that_it_names():
    """A stop for another turn of the session, or a steer, interrupts nobody."""
    world = World()
    holder = world.hold()
    holder.running = 3
    session = {SessionId("crew", "page"): holder}
    for turn, kind in ((2, MailKind.STOP), (3, MailKind.STEER)):
        await world.keeper._pass_on_stops(session, Urgent((Mail(id="m", kind=kind, turn=turn),)))
    assert holder.told == []
    await world.keeper._pass_on_stops(session, Urgent((Mail(id="m", kind=MailKind.STOP, turn=3),)))
    assert holder.told == [Interrupt.STOPPED]


def test_the_thread_renews_by_itself():
    """Started, it looks without being asked; stopped, it gives its connection back."""
    renewals = Renewals()
    keeper = LeaseKeeper(renewals, lease_s=0.3, longest_s=60.0)
    holder = Holder(Hold("session", "crew", "page", "token"))
    keeper.start()
    keeper.keep(holder)
    while len(renewals.asked) < 3 and not holder.told:
        pass
    keeper.stop()
    assert renewals.closed
