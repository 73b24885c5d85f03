"""Keep the findings that providers made, by name, with the classes that want them, and the unwanted ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..model.asked_hosts import AskedHosts
from ..model.cached import CachedSet, Finding, FindingId, UpstreamProblem
from ..model.types import ROUTE, VIRTUAL_HOST, Change, Params, TypeUrl
from ..model.variants import VariantSet
from ..model.views import alike
from .provider import Subject


def made_set(findings: Iterable[Finding], problems: tuple[UpstreamProblem, ...] = ()) -> CachedSet:
    """Return the findings of one name that a provider made, and what is wrong with it."""
    return CachedSet(findings, problems, made=True)


NOTHING = made_set(())


class Topic:
    """One name that a session wants, or that has findings."""

    __slots__ = ("generation", "known", "wanted")

    def __init__(self) -> None:
        self.wanted: dict[Params, int] = {}  # subscriptions by class
        self.known: CachedSet = NOTHING
        self.generation = 0  # how often it was invalidated

    def keep(self, findings: Iterable[Finding], problems: tuple[UpstreamProblem, ...] | None = None) -> None:
        """Have these findings, and these problems in place of the known ones if they are given."""
        self.known = made_set(findings, self.known.problems if problems is None else problems)

    def doubt(self, findings: Iterable[Finding]) -> list[Finding]:
        """Mark findings as stale. Return those that are dropped instead: absences.

        A client can go on with a stale resource, but there is nothing to keep of an absence.
        """
        doubtful = {id(each) for each in findings}
        kept: list[Finding] = []
        dropped: list[Finding] = []
        for each in self.known.findings:
            if id(each) not in doubtful or each.stale:
                kept.append(each)
            elif each.variant is not None:
                kept.append(replace(each, stale=True))
            else:
                dropped.append(each)
        self.keep(kept)
        return dropped

    def learn(self, finding: Finding) -> Finding:
        """Add a finding, in place of the one with the same constraints. Return it as it is kept.

        An equal variant keeps the object that sessions have sent, so that they do not send it again.
        """
        old = next((each for each in self.known.findings if each.id == finding.id), None)
        if old is not None and alike(old.variant, finding.variant):
            finding = replace(finding, variant=old.variant)
        self.keep((finding, *(each for each in self.known.findings if each is not old)))
        return finding


class Topics:
    """All names that a session wants or that have findings; of virtual hosts, also by domain."""

    def __init__(self) -> None:
        self._topics: dict[Subject, Topic] = {}
        self._hosts = AskedHosts()  # the virtual hosts among them

    def __len__(self) -> int:
        return len(self._topics)

    def __getitem__(self, subject: Subject) -> Topic:
        return self._topics[subject]

    def find(self, subject: Subject) -> Topic | None:
        """Return the topic of a name, if there is one."""
        return self._topics.get(subject)

    def of_type(self, type_url: TypeUrl) -> list[Subject]:
        """Return the names of one type."""
        return [subject for subject in self._topics if subject[0] == type_url]

    def ensure(self, subject: Subject) -> Topic:
        """Return the topic of a name, and create it if there is none."""
        topic = self._topics.get(subject)
        if topic is None:
            topic = self._topics[subject] = Topic()
            type_url, name = subject
            if type_url == VIRTUAL_HOST:
                self._hosts.add(name)
        return topic

    def forget(self, subject: Subject) -> None:
        """Drop the topic of a name without subscribers and findings."""
        del self._topics[subject]
        type_url, name = subject
        if type_url == VIRTUAL_HOST:
            self._hosts.remove(name)

    def concerned(self, change: Change) -> Iterator[Subject]:
        """Yield the wanted names whose resource a change may give or take, including hosts that domains match."""
        subjects = [(change.type_url, name) for name in change.names]
        if change.type_url == VIRTUAL_HOST:
            subjects += [(VIRTUAL_HOST, string) for string in self._hosts.concerned(change)]
        elif change.type_url == ROUTE:  # VHD-6: whether the port of a host counts may have changed
            subjects += [(VIRTUAL_HOST, string) for string in self._hosts.under(change.name) if ":" in string]
        for subject in dict.fromkeys(subjects):
            if subject in self._topics:
                yield subject


class IdleFindings:
    """The findings without subscribers, the one unused for longest first."""

    def __init__(self) -> None:
        self._idle: dict[tuple[Subject, FindingId], None] = {}

    def __len__(self) -> int:
        return len(self._idle)

    def note(self, subject: Subject, finding: Finding, *, used: bool) -> None:
        """Note whether a client uses a finding."""
        if used:
            self._idle.pop((subject, finding.id), None)
        else:
            self._idle.setdefault((subject, finding.id))

    def drop(self, subject: Subject, findings: Iterable[Finding]) -> None:
        """Forget findings that are gone."""
        for each in findings:
            self._idle.pop((subject, each.id), None)

    def excess(self, limit: int) -> Iterator[tuple[Subject, FindingId]]:
        """Remove and yield the findings beyond the limit, oldest first."""
        while len(self._idle) > limit:
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            yield oldest


def is_given(known: VariantSet | None) -> bool:
    """Whether a resource was written by a transaction or a file, and not made by a provider."""
    return known is not None and not known.made
