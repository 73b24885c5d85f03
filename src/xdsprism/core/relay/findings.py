"""Turn the answers to upstream subscriptions into the findings of one name.

Several upstream subscriptions may concern one name: those by name, each with other params, and the wildcards that
cover it. `listening` merges their answers. A finding (`model/cached.py`) is a variant or an absence, with the
constraint of the clients that it holds for:

    the server sent                                     the finding holds for
    --------------------------------------------------  -----------------------------------------------------------
    a variant whose constraints match the params asked  all clients that the constraints match
    a variant whose constraints do not match them       exactly the params asked: the server has a reason that the
                                                        constraints do not tell
    an absence with constraints that match the params   all clients that the constraints match (DESIGN 6.4)
    an absence without constraints, or to a wildcard    exactly the params asked (PRX-31)
    anything, if the feed pins it (UpstreamFeed.pin)         the group of clients that the relay asked for

`refresh` then compares the findings with the cached ones. A cached variant that no subscription reports any more is
removed: it becomes stale, and clients keep it until the relay knows what replaces it. `find_problems` collects the
errors that clients are told (TP3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ...errors import STATUS
from ..model.cached import CachedSet, Finding, FindingId, UpstreamProblem
from ..model.constraints import FALSE, TRUE, Constraint, canonical, matches
from ..model.steps import EVERY, Steps, cut, finish, pieces
from ..model.types import VIRTUAL_HOST, Params, Variant
from ..model.variants import pins
from ..watch.entry import Entry, State
from ..watch.query_params import is_crowded
from .upstream_subscription import DENIED, REFUSED, UpstreamAnswer, UpstreamSubscription, is_missing

if TYPE_CHECKING:
    from ..watch.upstream import Upstream

UNAVAILABLE = "UNAVAILABLE"

Pin = Callable[[Entry], Constraint | None]


@dataclass(slots=True)
class UpstreamAnswers:
    """All answers for one name, merged into findings."""

    findings: dict[FindingId, Finding] = field(default_factory=dict)
    holders: dict[FindingId, list[UpstreamSubscription]] = field(default_factory=dict)  # by name, that report each
    listed: set[FindingId] = field(default_factory=set)  # findings that a wildcard reports
    wanted_by_wildcard: set[FindingId] = field(default_factory=set)  # of these, the ones whose wildcard a client wants
    doubtful: list[UpstreamSubscription] = field(default_factory=list)  # to ask again

    def add(self, answer: UpstreamAnswer, finding: Finding) -> None:
        """Merge the finding of one subscription.

        A finding is aged only if every subscription that reports it is.
        """
        finding_id = finding.id
        was_aged = finding_id not in self.findings or self.findings[finding_id].aged
        finding = replace(finding, aged=answer.subscription.is_too_old and was_aged)
        if answer.wild and finding.variant is not None and finding.variant.base == TRUE:
            # The copy from a wildcard is in the base set, and one asked for by name is not: keep the former, so that
            # wildcards list it.
            self.findings[finding_id] = finding
        if self.findings.setdefault(finding_id, finding).aged != finding.aged:
            self.findings[finding_id] = replace(self.findings[finding_id], aged=finding.aged)
        if not answer.wild:
            self.holders.setdefault(finding_id, []).append(answer.subscription)
            return
        self.listed.add(finding_id)
        if answer.wanted:
            self.wanted_by_wildcard.add(finding_id)


def listen(answers: Iterable[UpstreamAnswer], known: CachedSet, pin: Pin) -> UpstreamAnswers:
    """Merge the answers of all subscriptions that concern a name, in one go."""
    return finish(listening(answers, known, pin))


def listening(answers: Iterable[UpstreamAnswer], known: CachedSet, pin: Pin) -> Steps[UpstreamAnswers]:
    """Merge the answers in steps: variants first, newest first, then absences.

    Where two variants overlap, the newest wins (DESIGN 6.10). Absences come last, because their meaning depends on the
    variants that are still there.
    """
    said = UpstreamAnswers()
    speaking: list[UpstreamAnswer] = []
    for piece in cut(answers):
        speaking += piece
        if len(piece) == EVERY:
            yield
    speaking.sort(key=lambda answer: -answer.entry.updated)
    missing: list[UpstreamAnswer] = []
    for piece in pieces(speaking):
        for answer in piece:
            variant = answer.entry.variant
            if variant is not None:
                said.add(answer, _present(answer, _seen(answer, variant), pin(answer.entry), known))
            elif is_missing(answer.entry):
                missing.append(answer)
        if len(piece) == EVERY:
            yield
    if missing:
        yield from _add_missing(said, missing, known, pin)
    _generalise(said)
    _have_one_ask_again(said, speaking)
    return said


def _add_missing(said: UpstreamAnswers, missing: list[UpstreamAnswer], known: CachedSet, pin: Pin) -> Steps[None]:
    """Merge the absences, after all variants.

    gone: cached variants that no subscription reports any more.
    """
    there = {each.id for each in known.findings if each.variant is not None and not each.stale}
    gone = there - said.findings.keys()
    for piece in pieces(missing):
        for answer in piece:
            if not (answer.wild and _is_present(said, answer.params)):
                _add_absent(said, answer, gone, pin(answer.entry), known)
        if len(piece) == EVERY:
            yield


def _is_present(said: UpstreamAnswers, params: Params) -> bool:
    """Whether a subscription has a variant for these params. A variant outweighs a wildcard's absence."""
    return any(each.variant is not None and matches(each.constraint, params) for each in said.findings.values())


def _seen(answer: UpstreamAnswer, variant: Variant) -> Variant:
    """Return a variant as the relay's own clients may see it. Only virtual hosts and aliases differ.

    VHD-13: a host that the server gave to a wildcard belongs to the base set, which wildcards here get too; a host that
    the relay asked for by name does not. VHD-4: the aliases name the strings that the relay asked with, so clients must
    not get them. DLT-20: wildcards list a resource by its name, and not once more by an alias that somebody asked for.
    """
    if variant.type_url == VIRTUAL_HOST:
        return replace(variant, base=TRUE if answer.wild else FALSE, aliases=())
    is_alias = answer.entry.name in variant.aliases and answer.entry.name != variant.name
    return replace(variant, base=FALSE) if is_alias else variant


def _present(answer: UpstreamAnswer, variant: Variant, pin: Constraint | None, known: CachedSet) -> Finding:
    """Return the finding for a variant that a subscription has."""
    params = answer.params
    whose = pin if pin is not None else variant.constraint
    if matches(whose, params):
        return Finding(whose, _with(variant, whose))
    # The server has reasons beyond the constraints to send it for these params: give it to no other params.
    whose = _exactly(params, known)
    return Finding(whose, _with(variant, whose), only=params)


def _add_absent(
    said: UpstreamAnswers, answer: UpstreamAnswer, gone: set[FindingId], pin: Constraint | None, known: CachedSet
) -> None:
    """Merge one absence, for as many clients as the server said, or ask again if that is in doubt."""
    # A server corrects the constraints of an absence for subscriptions by name (DESIGN 6.4), not for a wildcard. So the
    # absence that a wildcard was told holds for its own params only.
    said_to_one = answer.wild or _is_refused(answer.entry)
    absence = pin if pin is not None else None if said_to_one else answer.entry.absence
    kept = answer.entry.kept_at is not None
    if absence is None or not matches(absence, answer.params):
        said.add(answer, Finding(_exactly(answer.params, known), None, only=answer.params, kept=kept))
    elif pin is None and (canonical(absence), None) in gone and not _is_denied(answer.entry):
        # These are the constraints of a variant that just went away: the server removed it from other subscriptions.
        # That does not say that these params have nothing, so ask again.
        said.doubtful.append(answer.subscription)
    else:
        said.add(answer, Finding(absence, None, kept=kept))


def problems(answers: Iterable[UpstreamAnswer], known: CachedSet, pin: Pin) -> tuple[UpstreamProblem, ...]:
    """Return the errors that clients are told for a name, in one go.

    An error is one that the server reported for the resource (TP3), or UNAVAILABLE if no server can be reached
    (PRX-11). The reason for the latter stays between relay and server: a server that does not let the relay in has not
    denied any client a resource.
    """
    return finish(find_problems(answers, known, pin))


def find_problems(answers: Iterable[UpstreamAnswer], known: CachedSet, pin: Pin) -> Steps[tuple[UpstreamProblem, ...]]:
    """Do what `problems` does, in steps, and add an error for each finding that is too old (PRX-25)."""
    found: dict[UpstreamProblem, None] = {}
    for piece in cut(answers):
        for answer in piece:
            problem = _problem(answer, known, pin)
            if problem is not None:
                found[problem] = None
        if len(piece) == EVERY:
            yield
    too_old = "the cached answer is older than --max-stale, and no server can be reached"
    aged = (
        UpstreamProblem(each.constraint, STATUS.index(UNAVAILABLE), too_old) for each in known.findings if each.aged
    )
    return (*found, *aged)


def _problem(answer: UpstreamAnswer, known: CachedSet, pin: Pin) -> UpstreamProblem | None:
    """Return the error of one subscription, and which params it concerns; None if it has none."""
    entry = answer.entry
    told = entry.state is State.RECEIVED_ERROR
    error = entry.own_error if told else entry.error if entry.lacking else None
    if error is None or error.status == "NOT_FOUND":
        return None
    whose, only = pin(entry) or (entry.absence if told and not _is_refused(entry) else None), None
    if whose is None or not matches(whose, answer.params):
        whose, only = _exactly(answer.params, known), answer.params
    text = error.message if told or error.status == UNAVAILABLE else str(error)
    refused = is_crowded(entry)
    status = REFUSED if refused else error.status if told else UNAVAILABLE
    return UpstreamProblem(whose, STATUS.index(status), text, only=only, refused=refused, is_quoted=not refused)


def _generalise(said: UpstreamAnswers) -> None:
    """Fold an absence for one set of params into a shared absence that covers them.

    A client that lost its variant learns nothing about others. Once another answer says for whom the resource does not
    exist, that answer stands for both.
    """
    shared = [each for each in said.findings.values() if each.variant is None and each.only is None]
    for finding_id in [
        finding_id for finding_id, each in said.findings.items() if each.variant is None and each.only is not None
    ]:
        only = finding_id[1]
        wider = next((each for each in shared if only is not None and matches(each.constraint, only)), None)
        if wider is not None:
            del said.findings[finding_id]
            said.holders.setdefault(wider.id, []).extend(said.holders.pop(finding_id, ()))


def _have_one_ask_again(said: UpstreamAnswers, answers: Iterable[UpstreamAnswer]) -> None:
    """Let one of several subscriptions that lost their variant ask again.

    Each loss holds for one set of params only, but their clients may be of one class, and a server that pins absences
    can say so. One of them asks, and its answer covers the others (`_generalise`). PRX-31: a server that does not name
    constraints for an absence would only repeat itself, so the relay does not ask it.
    """
    lost = [finding_id for finding_id, each in said.findings.items() if each.variant is None and each.only is not None]
    if len(lost) > 1:
        finding_ids = {
            finding_id[1]: finding_id for finding_id in lost if finding_id in said.holders
        }  # the others were told to a wildcard alone
        told = [answer for answer in answers if not answer.wild and answer.params in finding_ids]
        first = next((answer for answer in told if _names_constraints(answer.entry.sent_by)), None)
        if first is not None:
            said.doubtful.append(first.subscription)
            del said.findings[finding_ids[first.params]], said.holders[finding_ids[first.params]]


def _names_constraints(source: Upstream | None) -> bool:
    """Whether a server names the constraints of an absence."""
    return source is not None and source.pins_absence


def _exactly(params: Params, known: CachedSet) -> Constraint:
    """Return the constraint that pins all of these params, and the absence of every other key that variants mention."""
    return pins({key: params.get(key) for key in {*params, *known.keys}})


def _with(variant: Variant, constraint: Constraint) -> Variant:
    """Return the variant under another constraint. Its encoded frames contain the constraint, so they are dropped."""
    return variant if variant.constraint == constraint else replace(variant, constraint=constraint, frames={})


def refresh(known: CachedSet, said: UpstreamAnswers, now: float) -> Steps[CachedSet]:
    """Return the cached set after the answers, in steps.

    News come first, then what stayed the same, then removed variants, which are stale. Removed findings for single
    params, and absences that no subscription reports any more, are dropped. Returns the same object if nothing changed.
    """
    before = {each.id: each for each in known.findings}
    current: dict[FindingId, Finding] = {}
    for piece in pieces(said.findings.items()):
        current.update((finding_id, kept(before.get(finding_id), each, now)) for finding_id, each in piece)
        if len(piece) == EVERY:
            yield
    news = [each for finding_id, each in current.items() if each is not before.get(finding_id)]
    same = [each for finding_id, each in before.items() if each is current.get(finding_id)]
    lost = [each for finding_id, each in before.items() if finding_id not in current and each.variant is not None]
    findings = (*news, *same, *(_removed(each, now) for each in lost if each.only is None))
    return known if findings == known.findings else CachedSet(findings)


def kept(old: Finding | None, new: Finding, now: float) -> Finding:
    """Return the cached finding if the answer repeats it, else the new one.

    The cached one has the variant object that sessions have sent, so an equal answer is no change to them.
    """
    if old is None or old.kept != new.kept or not _same(old.variant, new.variant):
        return replace(new, since=now)
    if old.aged != new.aged:
        old = replace(old, aged=new.aged)
    return replace(old, stale=False, removed=False, stale_since=None, since=now) if old.stale else old


def _same(one: Variant | None, other: Variant | None) -> bool:
    """Whether two variants are equal in everything that clients see or the relay acts on."""
    if one is None or other is None:
        return one is other
    same = one.version == other.version and one.body == other.body and one.extras == other.extras
    return same and (one.ttl, one.references, one.base) == (other.ttl, other.references, other.base)


def _removed(finding: Finding, now: float) -> Finding:
    """Mark a finding as removed by the server, and stale."""
    return finding if finding.stale else replace(doubted(finding, now), removed=True)


def doubted(finding: Finding, now: float) -> Finding:
    """Mark a finding as stale: no subscription vouches for it any more."""
    return finding if finding.stale else replace(finding, stale=True, stale_since=now)


def _is_denied(entry: Entry) -> bool:
    """Whether the server answered with PERMISSION_DENIED (ERR-10)."""
    return entry.state is State.RECEIVED_ERROR and entry.own_error is not None and entry.own_error.status == DENIED


def _is_refused(entry: Entry) -> bool:
    """Whether the server refused this subscription as invalid (DYN-46): that says nothing about others (PRX-35)."""
    refused = entry.own_error is not None and entry.own_error.status == REFUSED
    return refused and entry.state is State.RECEIVED_ERROR
