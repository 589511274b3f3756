"""The tasks: a word for each end, nothing of a turn on the broker, a message given back only by who leaves."""

import pytest
from celery.exceptions import Reject

from config.settings import Settings
from heinzelwerk import errors
from tasks import asked, doorbell
from tasks.asked import TaskFailed
from workers import app as celery_app


class Deeds:
    def __init__(self):
        self.leaving = self.resting = False
        self.did = []
        self.error = None

    def _do(self, *what):
        self.did.append(what)
        if self.error is not None:
            raise self.error
        return "completed"

    def turn(self, session):
        return self._do("turn", session)

    def effect(self, team, effect_id):
        return self._do("effect", team, effect_id)

    def handoff(self, team, job_id):
        return self._do("handoff", team, job_id)

    def sweep(self):
        return self._do("sweep")

    def prune(self):
        return self._do("prune")


@pytest.fixture
def deeds():
    return Deeds()


@pytest.fixture
def app(deeds):
    app = celery_app.make_app(Settings(), "redis://127.0.0.1:1/0")
    asked.register(app, deeds)
    return app


def test_every_task_does_its_deed(app, deeds):
    """Ids in, one word out; each has a queue that some profile reads."""
    calls = {
        doorbell.TURN: ("crew/page",),
        doorbell.EFFECT: ("crew", "ab12"),
        doorbell.HANDOFF: ("crew", "j1"),
        doorbell.SWEEP: (),
        doorbell.PRUNE: (),
    }
    for name, ids in calls.items():
        assert app.tasks[name](*ids) == "completed"
        assert doorbell.ROUTES[name] in doorbell.QUEUES
    assert [done[1:] for done in deeds.did] == list(calls.values())


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (errors.LeaseLost("x"), "lost"),
        (errors.StoreUnavailable("x"), "store_unavailable"),
        (errors.FormatTooNew("x"), "newer"),
        (errors.Refused("x"), "refused"),
        (TimeoutError(), "timeout"),
        (ValueError("no session"), "malformed"),
    ],
)
def test_errors_that_the_state_answers_for_are_words(app, deeds, error, word):
    """The message is done with: what is due is rung again from the store."""
    deeds.error = error
    assert app.tasks[doorbell.TURN]("crew/page") == word


def test_an_unknown_error_shows_its_class_alone(app, deeds):
    """A text of a turn in an exception reaches the log, never the broker or Flower."""
    deeds.error = RuntimeError("the customer's words")
    with pytest.raises(TaskFailed) as caught:
        app.tasks[doorbell.TURN]("crew/page")
    assert str(caught.value) == "RuntimeError"
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_who_leaves_gives_the_message_back(app, deeds):
    """Another worker gets it at once; nothing is claimed here."""
    deeds.leaving = True
    with pytest.raises(Reject) as caught:
        app.tasks[doorbell.TURN]("crew/page")
    assert caught.value.requeue
    assert deeds.did == []


def test_a_drained_worker_drops_the_message(app, deeds):
    """It would come back at once; the store rings when the draining is over."""
    deeds.resting = True
    assert app.tasks[doorbell.TURN]("crew/page") == "draining"
    assert deeds.did == []


def test_the_broker_gets_json_and_nothing_is_kept(app):
    """No pickles, no results, late acknowledgement, no prefetched doorbells."""
    assert app.conf.accept_content == ["json"]
    assert (app.conf.task_serializer, app.conf.event_serializer) == ("json", "json")
    assert app.conf.result_backend is None
    assert (app.conf.task_acks_late, app.conf.worker_prefetch_multiplier) == (True, 1)
    assert not app.conf.worker_disable_prefetch
    assert list(app.conf.beat_schedule) == ["sweep"]
    assert app.conf.broker_transport_options["global_keyprefix"] == "mq:"
