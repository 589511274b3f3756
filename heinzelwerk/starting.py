"""Starting a turn from the inbox: pin, fetch, compare, and put `turn.started` on the spine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from heinzelwerk import (
    admission,
    closing,
    contract,
    errors,
    gathering,
    ids,
    lessons,
    looking_back,
    planning,
    skilling,
    unchanged,
)
from heinzelwerk.admission import Admitted, Choice, Skip
from heinzelwerk.claim import Claim
from heinzelwerk.commit import Body, TakenWake
from heinzelwerk.contract import Contract
from heinzelwerk.event import Note
from heinzelwerk.opening import FetchedInput, Opening, SkillText
from heinzelwerk.planning import Planned
from heinzelwerk.turn import Pins, TurnRecord, TurnState
from heinzelwerk.unchanged import Standing, Success
from heinzelwerk.wake import Cause

if TYPE_CHECKING:
    from heinzelwerk.ports import Works


async def open_next(claim: Claim, works: Works) -> Opening | None:
    """Take the next wake that may run and start its turn; None where nothing is left to run in this segment.

    Wakes that must not run end here, each with its record. A turn that cannot start (broken model configuration, an
    input that cannot be read) ends failed with the reason; its wake is not lost in silence.
    """
    choice = admission.choose(claim.snapshot, turns_an_hour=works.policy.turns_an_hour)
    if choice.admitted is None:
        await _end_skips(claim, choice.skips)
        return None
    return await _Start(claim, works, choice, choice.admitted).run()


async def _end_skips(claim: Claim, skips: tuple[Skip, ...]) -> None:
    if skips:
        await claim.commit(
            [skip.note() for skip in skips],
            taken_wakes=tuple(skip.taken() for skip in skips),
            ended_wakes=_skipped(skips),
        )


def _skipped(skips: tuple[Skip, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((skip.queued.wake.id, f"skipped: {skip.reason}") for skip in skips)


class _Start:
    """One start: what it has learned so far, from the wake to the opening."""

    def __init__(self, claim: Claim, works: Works, choice: Choice, admitted: Admitted) -> None:
        self.claim = claim
        self.works = works
        self.skips = choice.skips
        self.admitted = admitted
        self.wake = admitted.queued.wake
        accepted_ms = admitted.queued.accepted_ms
        as_of_ms = int(self.wake.slot.timestamp() * 1000) if self.wake.slot else accepted_ms
        self.turn = TurnRecord(
            number=claim.snapshot.last_turn + 1,
            state=TurnState.RUNNING,
            # The record keeps who and why; the words of the wake live in the body, which expires.
            wake=self.wake.model_copy(update={"text": None, "data": None}),
            accepted_ms=accepted_ms,
            as_of_ms=as_of_ms,
            started_ms=claim.now_ms(),
            merged=tuple(entry.wake.key for entry in admitted.merged),
        )

    async def run(self) -> Opening | None:
        try:
            raw, text = await self._contract()
            skills = await skilling.for_contract(text, self.wake.team, self.works)
            accepted = lessons.accepted(self.claim.snapshot.memo)
            pins = self._pins(text, skills, accepted)
            self.turn = self.turn.model_copy(update={"pins": pins, "retries_left": text.retries})
            as_of = admission.at(self.turn.as_of_ms)
            inputs = await gathering.gather(text, team=self.wake.team, as_of=as_of, works=self.works)
        except (errors.GiveUp, errors.ReadFailed, errors.ProviderUnavailable) as error:
            await self._fail(error)
            return None
        if await self._unchanged(inputs):
            return None
        await self._commit_start(raw, inputs, skills, accepted)
        return await self._opening(text, inputs, skills, accepted)

    async def _contract(self) -> tuple[bytes, Contract]:
        entry = self.claim.snapshot.entry
        if entry is None:
            raise errors.Refused(f"{self.wake.session} has no contract", fix="run `heinzelwerk load`")
        raw = await self.works.store.text(self.wake.team, entry.sha256)
        if raw is None:
            raise errors.BodyExpired(f"the text of contract {entry.sha256} is gone", fix="run `heinzelwerk load` again")
        reading = contract.reread(raw, file_name=f"{entry.name}.prose.md")
        if reading.contract is None:
            lines = tuple(
                f"{item.file}:{item.line} {item.code} {item.field} {item.message}" for item in reading.diagnostics
            )
            raise errors.ContractRefused(
                f"contract {entry.name} has errors: {lines[0] if lines else ''}", diagnostics=lines
            )
        return raw, reading.contract

    def _pins(self, text: Contract, skills: tuple[SkillText, ...], accepted: tuple[str, ...]) -> Pins:
        chosen = self.works.engine.pins(text)
        return Pins(
            contract=text.sha256,
            generation=self.claim.snapshot.generation,
            model=chosen.model,
            engine=chosen.engine,
            prices=chosen.prices,
            skills={skill.name: skill.fingerprint for skill in skills},
            lessons=ids.digest("\n".join(accepted)) if accepted else "",
        )

    async def _unchanged(self, inputs: dict[str, FetchedInput]) -> bool:
        """Whether the last success stands, so that no model is called; then the wake has ended here."""
        success = Success.read(self.claim.snapshot.memo)
        pins = self.turn.pins
        if pins is None:
            return False
        mark = unchanged.fingerprint(pins, inputs)
        self.turn = self.turn.model_copy(update={"inputs_digest": mark})
        if self.wake.cause not in (Cause.SCHEDULED, Cause.INPUTS) or success is None or success.fingerprint != mark:
            return False
        stands, again = await unchanged.standing(self.wake.session, success, self.works)
        if stands is Standing.CHANGED:
            return False
        planned = await planning.ask_again(again, self.works) if again else Planned()
        if planned.records:
            kept = tuple(entry for entry in success.effects if entry not in unchanged.effects_of(again))
            success = Success(success.turn, mark, (*kept, *unchanged.effects_of(planned.records)), success.output)
        skip = Skip(self.admitted.queued, "unchanged")
        merged = tuple(Skip(entry, "unchanged") for entry in self.admitted.merged)
        skips = (*self.skips, *merged, skip)
        await self.claim.commit(
            [*(entry.note() for entry in skips), *planned.notes],
            taken_wakes=tuple(entry.taken() for entry in skips),
            ended_wakes=_skipped(skips),
            effects=planned.records,
            bodies=planned.bodies,
            memo=success.memo(),
        )
        return True

    async def _commit_start(
        self, raw: bytes, inputs: dict[str, FetchedInput], skills: tuple[SkillText, ...], accepted: tuple[str, ...]
    ) -> None:
        number, name = self.turn.number, self.turn.id()
        bodies = [
            Body(number, "contract", raw),
            Body(number, "inputs", _dump_inputs(inputs)),
            Body(number, "lessons", json.dumps(accepted).encode()),
            Body(number, "skills", skilling.dump(skills)),
            *self._words(),
        ]
        await self.claim.commit(
            [
                *(skip.note() for skip in self.skips),
                self._started(inputs),
                *admission.merged_notes(self.admitted, name),
            ],
            turns=(self.turn,),
            new_turns=number,
            taken_wakes=self._taken(),
            ended_wakes=self._ended(),
            bodies=tuple(bodies),
            memo=admission.hour_memo(self.claim.snapshot),
            progress=False,
        )

    def _words(self) -> tuple[Body, ...]:
        """What the wake said, where it said something."""
        if self.wake.text is None and self.wake.data is None:
            return ()
        words = {"text": self.wake.text, "data": self.wake.data}
        return (Body(self.turn.number, "wake", json.dumps(words).encode()),)

    def _taken(self) -> tuple[TakenWake, ...]:
        """The wakes that leave the inbox with this turn's start."""
        return (*(skip.taken() for skip in self.skips), *self.admitted.taken(self.turn.number))

    def _ended(self) -> tuple[tuple[str, str], ...]:
        """Those of them that end with it; the turn's own ends when the turn does."""
        merged = ((entry.wake.id, f"merged: {self.turn.number}") for entry in self.admitted.merged)
        return (*_skipped(self.skips), *merged)

    def _started(self, inputs: dict[str, FetchedInput]) -> Note:
        turn = self.turn
        return Note(
            "turn.started",
            {
                "number": turn.number,
                "cause": turn.wake.cause.value,
                "wake": turn.wake.id,
                "key": turn.wake.key,
                "by": turn.wake.by,
                "as_of": admission.at(turn.as_of_ms).isoformat(),
                "merged": len(turn.merged),
                "pins": turn.pins.model_dump(mode="json") if turn.pins else None,
                "inputs": {name: entry.sha256 for name, entry in inputs.items()},
                "inputs_digest": turn.inputs_digest,
            },
            turn=turn.id(),
            key=turn.wake.key,
        )

    async def _opening(
        self, text: Contract, inputs: dict[str, FetchedInput], skills: tuple[SkillText, ...], accepted: tuple[str, ...]
    ) -> Opening:
        earlier, approved = await looking_back.look(self.turn, text, self.works)
        return Opening(
            turn=self.turn,
            contract=text,
            version=contract_version(text.sha256),
            model=self.turn.pins.model if self.turn.pins else "",
            inputs=inputs,
            message=self.wake.text,
            data=self.wake.data,
            skills=skills,
            lessons=accepted,
            earlier=earlier,
            approved=approved,
        )

    async def _fail(self, error: errors.HeinzelwerkError) -> None:
        turn = self.turn
        number = turn.number
        await self.claim.commit(
            [
                *(skip.note() for skip in self.skips),
                self._started({}),
                *admission.merged_notes(self.admitted, turn.id()),
                closing.ended_note(turn, TurnState.FAILED, closing.failure_line(error)),
            ],
            turns=(closing.ended(turn, TurnState.FAILED, closing.failure_line(error), now_ms=self.claim.now_ms()),),
            new_turns=number,
            taken_wakes=self._taken(),
            ended_wakes=(*self._ended(), (self.wake.id, TurnState.FAILED.value)),
            bodies=(*self._words(), Body(number, "failure", f"{error}\n{error.fix}".encode())),
            memo=admission.hour_memo(self.claim.snapshot),
            expire_bodies=(number,),
        )


def contract_version(sha256: str) -> str:
    """What a draft names as its contract version: the first twelve digits of the file's hash."""
    return sha256.removeprefix("sha256:")[:12]


def _dump_inputs(inputs: dict[str, FetchedInput]) -> bytes:
    return json.dumps({name: entry.model_dump(mode="json") for name, entry in inputs.items()}).encode()
