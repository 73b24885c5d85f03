"""From what the subscriptions of a relay say to what is known of a name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ...errors import STATUS
from ..model.cached import CachedSet, Finding, Form, UpstreamProblem
from ..model.constraints import FALSE, TRUE, Constraint, canonical, matches
from ..model.steps import EVERY, Steps, cut, finish, pieces
from ..model.types import VIRTUAL_HOST, Params, TypeUrl, Variant
from ..model.variants import pins
from ..watch.entry import Collection, Entry, State
from ..watch.query_params import is_crowded

if TYPE_CHECKING:
    from ..watch.upstream import Upstream

DENIED = "PERMISSION_DENIED"  # ERR-10: as good as not there
UNAVAILABLE = "UNAVAILABLE"
REFUSED = "INVALID_ARGUMENT"  # DYN-46: it will never be answered
NO_ANSWER = frozenset({"NOT_FOUND", DENIED, REFUSED})

Pin = Callable[[Entry], Constraint | None]


@dataclass(frozen=True, slots=True)
class UpstreamAnswer:
    """A subscription that speaks of a name: one of its own, or a wildcard."""

    params: Params
    entry: Entry
    wild: bool
    wanted: bool
    aged: bool = False


@dataclass(slots=True)
class UpstreamAnswers:
    """Everything that is said of a name at one time."""

    findings: dict[Form, Finding] = field(default_factory=dict)
    holders: dict[Form, list[Params]] = field(default_factory=dict)  # subscriptions of the name that stand for each
    listed: set[Form] = field(default_factory=set)  # what a wildcard stands for
    lasting: set[Form] = field(default_factory=set)  # ... that somebody wants
    doubtful: list[Entry] = field(default_factory=list)  # have to be asked again

    def add(self, voice: UpstreamAnswer, finding: Finding) -> None:
        form = finding.form
        was_aged = form not in self.findings or self.findings[form].aged
        finding = replace(finding, aged=voice.aged and was_aged)
        if voice.wild and finding.variant is not None and finding.variant.base == TRUE:
            self.findings[form] = finding  # whoever asks by name has it too, but that does not put it on the list
        if self.findings.setdefault(form, finding).aged != finding.aged:
            self.findings[form] = replace(self.findings[form], aged=finding.aged)
        if not voice.wild:
            self.holders.setdefault(form, []).append(voice.params)
            return
        self.listed.add(form)
        if voice.wanted:
            self.lasting.add(form)


class Departed:
    """What wildcards had and have no more, of the names that somebody wants.

    A server that said so to a wildcard does not say it again to one who asks by name: some have no word for that.
    """

    def __init__(self) -> None:
        self._gone: dict[tuple[TypeUrl, str], dict[Collection, Entry]] = {}

    def __bool__(self) -> bool:
        return bool(self._gone)

    def note(self, wildcard: Collection, member: Entry) -> None:
        subject = member.type_url, member.name
        if is_missing(member):
            self._gone.setdefault(subject, {})[wildcard] = member
        else:
            self._drop(subject, wildcard)

    def member(self, subject: tuple[TypeUrl, str], wildcard: Entry) -> Entry | None:
        """What a wildcard has to say of a name, be it that it is gone."""
        if not isinstance(wildcard, Collection):
            return None
        return wildcard.members.get(subject[1]) or self._gone.get(subject, {}).get(wildcard)

    def forget(self, subject: tuple[TypeUrl, str]) -> None:
        """Nobody wants it any more."""
        self._gone.pop(subject, None)

    def leave(self, wildcard: Collection) -> list[tuple[TypeUrl, str]]:
        """A wildcard goes, and what it said with it; of which names that was."""
        left = [subject for subject, gone in self._gone.items() if wildcard in gone]
        for subject in left:
            self._drop(subject, wildcard)
        return left

    def _drop(self, subject: tuple[TypeUrl, str], wildcard: Collection) -> None:
        gone = self._gone.get(subject, {})
        gone.pop(wildcard, None)
        if not gone:
            self._gone.pop(subject, None)


def listen(voices: Iterable[UpstreamAnswer], known: CachedSet, pin: Pin) -> UpstreamAnswers:
    """What is there counts from the newest on. What is not there may have been said of something that was."""
    return finish(listening(voices, known, pin))


def listening(voices: Iterable[UpstreamAnswer], known: CachedSet, pin: Pin) -> Steps[UpstreamAnswers]:
    """What `listen` does, in steps."""
    said = UpstreamAnswers()
    speaking: list[UpstreamAnswer] = []
    for piece in cut(voices):
        speaking += piece
        if len(piece) == EVERY:
            yield
    speaking.sort(key=lambda voice: -voice.entry.updated)
    missing: list[UpstreamAnswer] = []
    for piece in pieces(speaking):
        for voice in piece:
            variant = voice.entry.variant
            if variant is not None:
                said.add(voice, _present(voice, _seen(voice, variant), pin(voice.entry), known))
            elif is_missing(voice.entry):
                missing.append(voice)
        if len(piece) == EVERY:
            yield
    if missing:
        yield from _add_missing(said, missing, known, pin)
    _generalise(said)
    _press(said, speaking)
    return said


def _add_missing(said: UpstreamAnswers, missing: list[UpstreamAnswer], known: CachedSet, pin: Pin) -> Steps[None]:
    """Of what is there all is said already."""
    there = {each.form for each in known.findings if each.variant is not None and not each.stale}
    gone = there - said.findings.keys()
    for piece in pieces(missing):
        for voice in piece:
            if not (voice.wild and _is_present(said, voice.params)):
                _add_absent(said, voice, gone, pin(voice.entry), known)
        if len(piece) == EVERY:
            yield


def _is_present(said: UpstreamAnswers, params: Params) -> bool:
    """Whether one who was asked by name has it: that counts more than that a wildcard has not."""
    return any(each.variant is not None and matches(each.constraint, params) for each in said.findings.values())


def _seen(voice: UpstreamAnswer, variant: Variant) -> Variant:
    """VHD-13: what a server gives to a wildcard is for the wildcards here; of virtual hosts that is not all.

    VHD-4: the aliases that the relay was given are the strings that it asked for, not those of its clients.
    """
    if variant.type_url != VIRTUAL_HOST:
        return variant
    return replace(variant, base=TRUE if voice.wild else FALSE, aliases=())


def _present(voice: UpstreamAnswer, variant: Variant, pin: Constraint | None, known: CachedSet) -> Finding:
    params = voice.params
    whose = pin if pin is not None else variant.constraint
    if matches(whose, params):
        return Finding(whose, _with(variant, whose))
    whose = _exactly(params, known)  # the server has reasons of its own to give it to these; nobody else has them
    return Finding(whose, _with(variant, whose), only=params)


def _add_absent(
    said: UpstreamAnswers, voice: UpstreamAnswer, gone: set[Form], pin: Constraint | None, known: CachedSet
) -> None:
    # A server corrects what it said of a name to those who asked for the name (DESIGN 6.4), and not to a wildcard.
    said_to_one = voice.wild or _is_refused(voice.entry)
    absence = pin if pin is not None else None if said_to_one else voice.entry.absence
    kept = voice.entry.kept_at is not None
    if absence is None or not matches(absence, voice.params):
        said.add(voice, Finding(_exactly(voice.params, known), None, only=voice.params, kept=kept))
    elif pin is None and (canonical(absence), None) in gone and not _is_denied(voice.entry):
        said.doubtful.append(voice.entry)  # so others lost a variant, of which this one was never told
    else:
        said.add(voice, Finding(absence, None, kept=kept))


def troubles(voices: Iterable[UpstreamAnswer], known: CachedSet, pin: Pin) -> tuple[UpstreamProblem, ...]:
    """What is wrong, as the server said it (TP3); or that none can be reached (PRX-11).

    Why that is, is between the relay and the server. One that does not let the relay in has denied nobody a resource.
    """
    return finish(find_troubles(voices, known, pin))


def find_troubles(voices: Iterable[UpstreamAnswer], known: CachedSet, pin: Pin) -> Steps[tuple[UpstreamProblem, ...]]:
    """What `troubles` does, in steps."""
    found: dict[UpstreamProblem, None] = {}
    for piece in cut(voices):
        for trouble in (_trouble(voice, known, pin) for voice in piece):
            if trouble is not None:
                found[trouble] = None
        if len(piece) == EVERY:
            yield
    too_old = "what is known of it is too old, and no server can be reached"
    aged = (
        UpstreamProblem(each.constraint, STATUS.index(UNAVAILABLE), too_old) for each in known.findings if each.aged
    )
    return (*found, *aged)


def _trouble(voice: UpstreamAnswer, known: CachedSet, pin: Pin) -> UpstreamProblem | None:
    """What is wrong with one subscription."""
    entry = voice.entry
    told = entry.state is State.RECEIVED_ERROR
    error = entry.verdict if told else entry.error if entry.lacking else None
    if error is None or error.status == "NOT_FOUND":
        return None
    whose, only = pin(entry) or (entry.absence if told and not _is_refused(entry) else None), None
    if whose is None or not matches(whose, voice.params):
        whose, only = _exactly(voice.params, known), voice.params
    text = error.message if told or error.status == UNAVAILABLE else str(error)
    refused = is_crowded(entry)
    status = REFUSED if refused else error.status if told else UNAVAILABLE
    return UpstreamProblem(whose, STATUS.index(status), text, only=only, refused=refused)


def _generalise(said: UpstreamAnswers) -> None:
    """Where it is known by now for whom there is nothing, it is not only those who lost something."""
    shared = [each for each in said.findings.values() if each.variant is None and each.only is None]
    for form in [form for form, each in said.findings.items() if each.variant is None and each.only is not None]:
        only = form[1]
        wider = next((each for each in shared if only is not None and matches(each.constraint, only)), None)
        if wider is not None:
            del said.findings[form]
            said.holders.setdefault(wider.form, []).extend(said.holders.pop(form, ()))


def _press(said: UpstreamAnswers, voices: Iterable[UpstreamAnswer]) -> None:
    """Several who lost something may be alike, and the server can tell: one of them asks, once, what there is now.

    PRX-31: a server that does not say for whom there is nothing would only say the same again.
    """
    lost = [form for form, each in said.findings.items() if each.variant is None and each.only is not None]
    if len(lost) > 1:
        forms = {form[1]: form for form in lost}
        told = (voice for voice in voices if not voice.wild and voice.params in forms)
        first = next((voice for voice in told if _is_telling(voice.entry.source)), None)
        if first is not None:
            said.doubtful.append(first.entry)
            del said.findings[forms[first.params]], said.holders[forms[first.params]]


def _is_telling(source: Upstream | None) -> bool:
    return source is not None and source.pins_absence


def _exactly(params: Params, known: CachedSet) -> Constraint:
    """Those who are alike in all that may matter."""
    return pins({key: params.get(key) for key in {*params, *known.keys}})


def _with(variant: Variant, constraint: Constraint) -> Variant:
    return variant if variant.constraint == constraint else replace(variant, constraint=constraint, frames={})


def refresh(known: CachedSet, said: UpstreamAnswers, now: float) -> Steps[CachedSet]:
    """What is said now; and what was said and is not any more, as stale."""
    before = {each.form: each for each in known.findings}
    current: dict[Form, Finding] = {}
    for piece in pieces(said.findings.items()):
        current.update((form, kept(before.get(form), each, now)) for form, each in piece)
        if len(piece) == EVERY:
            yield
    news = [each for form, each in current.items() if each is not before.get(form)]
    same = [each for form, each in before.items() if each is current.get(form)]
    lost = [each for form, each in before.items() if form not in current and each.variant is not None]
    findings = (*news, *same, *(_withdrawn(each, now) for each in lost if each.only is None))
    return known if findings == known.findings else CachedSet(findings)


def kept(old: Finding | None, new: Finding, now: float) -> Finding:
    """The object that was sent, where nothing changed."""
    if old is None or old.kept != new.kept or not _same(old.variant, new.variant):
        return replace(new, since=now)
    if old.aged != new.aged:
        old = replace(old, aged=new.aged)
    return replace(old, stale=False, withdrawn=False, stale_since=None, since=now) if old.stale else old


def _same(one: Variant | None, other: Variant | None) -> bool:
    if one is None or other is None:
        return one is other
    same = one.version == other.version and one.body == other.body and one.extras == other.extras
    return same and (one.ttl, one.references, one.base) == (other.ttl, other.references, other.base)


def _withdrawn(finding: Finding, now: float) -> Finding:
    return finding if finding.stale else replace(doubted(finding, now), withdrawn=True)


def doubted(finding: Finding, now: float) -> Finding:
    return finding if finding.stale else replace(finding, stale=True, stale_since=now)


def _is_denied(entry: Entry) -> bool:
    return entry.state is State.RECEIVED_ERROR and entry.verdict is not None and entry.verdict.status == DENIED


def _is_refused(entry: Entry) -> bool:
    """DYN-46: the server did not take this question, and so says nothing of others (PRX-35)."""
    refused = entry.verdict is not None and entry.verdict.status == REFUSED
    return refused and entry.state is State.RECEIVED_ERROR


def is_missing(entry: Entry) -> bool:
    """Whether it is known that there is nothing."""
    verdict = entry.verdict.status if entry.verdict is not None and entry.state is State.RECEIVED_ERROR else ""
    denied = verdict in NO_ANSWER
    return entry.variant is None and (entry.state is State.DOES_NOT_EXIST or denied)


def is_pending(entry: Entry) -> bool:
    """Whether it is not known yet what there is."""
    return entry.variant is None and not is_missing(entry)


def is_awaited(entry: Entry) -> bool:
    """Whether an answer is on its way. Something that is wrong is an answer too, though nothing to go on with."""
    return is_pending(entry) and entry.verdict is None


def is_answered(entry: Entry) -> bool:
    """Whether all of a wildcard is there; from an earlier run, as long as there is nobody to ask (PRX-25).

    Of a glob it can be known that there is nothing: that it is nobody's, say.
    """
    return entry.state is State.ACKED or entry.kept_at is not None or is_missing(entry)
