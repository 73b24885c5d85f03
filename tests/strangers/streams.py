"""The streams of the second reading: what a client asked for, what it was sent, and what to say next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from envoy.service.discovery.v3 import discovery_pb2 as pb

from tests.strangers.negatives import Negative, is_true_still, negative
from tests.strangers.shapes import Region, Shape, holds, pinned, region, reworded, to_proto
from tests.strangers.upstream import FULL_STATE, WILDCARD, Offer, Stranger, everywhere, is_true

NOT_FOUND = 5
Key = tuple[str, tuple[tuple[str, str], ...] | None]  # a name and params; None: asked for by its plain name
Ident = tuple[str, Region, bool]  # a variant that was sent: name, whom it is for, whether by resource_name


@dataclass
class Sent:
    constraints: Any  # in the form in which they were sent
    offer: Offer


@dataclass
class Part:
    """What must be in one response; parts may share one."""

    resources: list[tuple[Ident, Any]] = field(default_factory=list)
    withdrawn: list[Any] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    errors: list[Any] = field(default_factory=list)
    follows: Part | None = None  # in an earlier response

    @property
    def loose(self) -> set[str]:
        """Names that are said to be gone without constraints: no resource of that name is in the same response."""
        return {*self.removed, *(each.resource_name.name for each in self.errors)}

    def may_join(self, other: Part) -> bool:
        mine, others = {ident for ident, _ in self.resources}, {ident for ident, _ in other.resources}
        named, others_named = {ident[0] for ident in mine}, {ident[0] for ident in others}
        clash = mine & others or self.loose & others_named or other.loose & named or self.loose & other.loose
        return not clash and self.follows is None

    def join(self, other: Part) -> None:
        self.resources += other.resources
        self.withdrawn += [each for each in other.withdrawn if each not in self.withdrawn]
        self.removed += other.removed
        self.errors += other.errors


class Stream:
    """What both protocols share. `notes` has every message, for whoever wants to read them."""

    def __init__(self, server: Stranger) -> None:
        self.server = server
        self.is_open = True
        self.notes: list[tuple[str, Any]] = []
        self.talks: dict[str, Any] = {}
        self.node: dict[str, str] = {}

    def close(self) -> None:
        self.is_open = False
        self.server.streams.remove(self)

    def poll(self) -> list[bytes]:
        responses = []
        for talk in self.talks.values():
            if not talk.is_begun:
                talk.is_begun = True
                self.server.begin(talk.type_url)
            responses += talk.news()
        return self._write(responses)

    def _read(self, request: Any) -> None:
        self.notes.append(("request", request))
        if request.HasField("node"):
            fields = request.node.metadata.fields
            self.node = {key: value.string_value for key, value in fields.items() if value.HasField("string_value")}
        if request.HasField("error_detail"):
            raise AssertionError(f"a legal response was rejected: {request.error_detail.message}")

    def _write(self, responses: Iterable[Any]) -> list[bytes]:
        written = []
        for each in responses:
            self.notes.append(("response", each))
            written.append(each.SerializeToString())
        return written


class Talk:
    """One type on one stream."""

    def __init__(self, stream: Stream, type_url: str) -> None:
        self.stream = stream
        self.server = stream.server
        self.type_url = type_url
        self.full_state = type_url in FULL_STATE
        self.subscriptions: dict[Key, None] = {}
        self.unanswered: dict[Key, None] = {}  # what was asked for since the last response
        self.sent: dict[Ident, Sent] = {}
        self.said: set[tuple[str, Shape]] = set()  # of whom it was said that there is nothing
        self.nonces: set[str] = set()
        self.is_begun = False

    @property
    def random(self) -> Random:
        return self.server.random

    def params(self, key: Key) -> Mapping[str, str]:
        return self.stream.node if key[1] is None else dict(key[1])

    def covering(self, name: str) -> list[Key]:
        return [key for key in self.subscriptions if key[0] in (name, WILDCARD)]

    def names(self) -> list[str]:
        wild = self.server.names(self.type_url) if any(key[0] == WILDCARD for key in self.subscriptions) else []
        return sorted({key[0] for key in self.subscriptions} - {WILDCARD} | {*wild} | {each[0] for each in self.sent})

    def chosen(self, name: str) -> dict[Ident, tuple[Offer, list[Key]]]:
        """The variants that the subscriptions select, and which those are."""
        found: dict[Ident, tuple[Offer, list[Key]]] = {}
        for key in self.covering(name):
            offer = self.server.select(self.type_url, name, self.params(key))
            if offer is not None:
                found.setdefault((name, offer.region, key[1] is not None), (offer, []))[1].append(key)
        return found

    def lacking(self, name: str) -> list[Key]:
        """Who asked for a name, not for all, and there is nothing."""
        named = [key for key in self.subscriptions if key[0] == name]
        return [key for key in named if self.server.select(self.type_url, name, self.params(key)) is None]

    def forget(self) -> None:
        """What nobody asks for any more need not be withdrawn."""
        for ident, sent in [*self.sent.items()]:
            alike = [key for key in self.covering(ident[0]) if (key[1] is not None) == ident[2]]
            if not any(holds(sent.offer.shape, self.params(key)) for key in alike):
                del self.sent[ident]
        asked = {key for key in self.subscriptions if key[1] is not None}
        self.said = {each for each in self.said if any(self._is_about(each, key) for key in asked)}

    def _is_about(self, said: tuple[str, Shape], key: Key) -> bool:
        return said[0] == key[0] and holds(said[1], self.params(key))

    def due_denials(self, name: str) -> dict[Key, bool]:
        """Who has to be told that there is nothing; and whether it is because more was said than is true by now.

        What was said of more than those who asked is kept true for as long as somebody asks whom it was about.
        """
        offers, lacking = self.server.offers(self.type_url, name), self.lacking(name)
        wrong = {each for each in self.said if each[0] == name and not is_true_still(each[1], offers)}
        self.said -= wrong
        misled = {key for key in lacking if any(holds(shape, self.params(key)) for _, shape in wrong)}
        return {key: key in misled for key in lacking if key in misled or key in self.unanswered}

    def again(self) -> None:
        """Somebody is told what it knows already."""
        if self.subscriptions:
            self.unanswered[self.random.choice([*self.subscriptions])] = None

    def words(self, offer: Offer) -> Any:
        habits = self.server.habits
        if not habits.rewords:
            return to_proto(offer.shape)
        return to_proto(reworded(offer.shape, self.random), self.random)

    def resource(self, ident: Ident, offer: Offer) -> Any:
        constraints = self.words(offer) if ident[2] else None
        self.sent[ident] = Sent(constraints, offer)
        return self.server.resource(self.type_url, ident[0], offer, constraints)

    def withdrawal(self, ident: Ident, sent: Sent) -> Any:
        """TP2: by the constraints that were sent, or by others that mean the same."""
        made = pb.ResourceName(name=ident[0])
        again = self.server.habits.rewords_removals
        made.dynamic_parameter_constraints.CopyFrom(self.words(sent.offer) if again else sent.constraints)
        return made

    def error(self, name: str, constraints: Any | None) -> Any:
        made = pb.ResourceError()
        made.resource_name.name = name
        if constraints is not None:
            made.resource_name.dynamic_parameter_constraints.CopyFrom(constraints)
        made.error_detail.code, made.error_detail.message = NOT_FOUND, "no such thing"
        return made

    def choose_negative(self, key: Key, kinds: Iterable[str]) -> Negative | None:
        offers = self.server.offers(self.type_url, key[0])
        said = negative(self.random.choice([*kinds]), self.params(key), offers, self.random)
        if said is not None and said.shape is not None:
            self.said.add((key[0], said.shape))
        return said


class DeltaStream(Stream):
    def receive(self, message: bytes) -> None:
        request = pb.DeltaDiscoveryRequest.FromString(message)
        self._read(request)
        if request.type_url not in self.talks:
            self.talks[request.type_url] = DeltaTalk(self, request.type_url)
        self.talks[request.type_url].receive(request)


class DeltaTalk(Talk):
    def __init__(self, stream: Stream, type_url: str) -> None:
        super().__init__(stream, type_url)
        self.claims: Mapping[str, str] = {}  # what the client had before this stream
        self._begun = False

    def receive(self, request: Any) -> None:
        assert not request.response_nonce or request.response_nonce in self.nonces, "an ACK of nothing"
        asked: list[Key] = [(name, None) for name in request.resource_names_subscribe]
        asked += [_key(each) for each in request.resource_locators_subscribe]
        dropped: list[Key] = [(name, None) for name in request.resource_names_unsubscribe]
        dropped += [_key(each) for each in request.resource_locators_unsubscribe]
        if not self._begun:
            self._begun = True
            self.claims = dict(request.initial_resource_versions)
            if not asked and self.full_state:
                asked = [(WILDCARD, None)]
        for key in dropped:
            self.subscriptions.pop(key, None)
            self.unanswered.pop(key, None)
        self.forget()
        for key in asked:
            self.subscriptions[key] = None
            self.unanswered[key] = None

    def news(self) -> list[Any]:
        chains: list[list[Part]] = []
        answered = bool(self.unanswered)
        for name in self.names():
            chains += self._about(name)
        was_empty = not chains and answered and any(key[0] == WILDCARD for key in self.unanswered)
        self.unanswered.clear()
        self.claims = {}
        if was_empty:
            chains.append([Part()])  # a wildcard without members has an answer too
        return [self._response(part) for part in self._shared(chains)]

    def _about(self, name: str) -> list[list[Part]]:
        """What there is to say of a name: chains of parts, each of which is said in order."""
        habits, chosen = self.server.habits, self.chosen(name)
        offers = self.server.offers(self.type_url, name)
        regions = {each.region for each in offers}
        held = self._held(name, chosen)
        gone = {ident: sent for ident, sent in self.sent.items() if ident[0] == name and ident[1] not in regions}
        for ident in gone:
            del self.sent[ident]
        chains: list[list[Part]] = []
        fresh: list[Part] = []
        for ident, (offer, keys) in chosen.items():
            new = [key for key in keys if key in self.unanswered and key not in held]
            if new or ident not in self.sent or self.sent[ident].offer.version != offer.version:
                times = len(new) if habits.repeats and len(new) > 1 else 1
                fresh += [Part(resources=[(ident, self.resource(ident, offer))]) for _ in range(times)]
        old = [self._removal(ident, sent, chosen) for ident, sent in gone.items()]
        old = [part for part in old if part is not None]
        old += self._claimed_but_gone(name)
        if old and fresh:
            chains += self._replacement(name, old, fresh, gone)
        else:
            chains += [[part] for part in (*old, *fresh)]
        return chains + [[part] for part in self._denials(name)]

    def _held(self, name: str, chosen: Mapping[Ident, tuple[Offer, list[Key]]]) -> set[Key]:
        """Who has on this new stream what it had on the last one, in the version that it said."""
        claim = self.claims.get(name)
        held: set[Key] = set()
        if claim and self.server.habits.honours_versions:
            for ident, (offer, keys) in chosen.items():
                if offer.version == claim and ident not in self.sent:
                    self.sent[ident] = Sent(to_proto(offer.shape), offer)
                    held.update(keys)
        return held

    def _removal(self, ident: Ident, sent: Sent, chosen: Mapping[Ident, Any]) -> Part | None:
        name, _, located = ident
        if not located:
            replaced = any(each[0] == name and not each[2] for each in chosen)
            return None if replaced else Part(removed=[name])
        if is_true(sent.offer.shape) and not sent.constraints.ByteSize() and self.server.maybe(0.3):
            return Part(removed=[name])  # nothing with constraints was sent
        return Part(withdrawn=[self.withdrawal(ident, sent)])

    def _claimed_but_gone(self, name: str) -> list[Part]:
        """A wildcard can learn only so that what it had is gone; who asked by name is answered anyway."""
        wild = [key for key in self.unanswered if key[0] == WILDCARD and name in self.claims]
        parts = []
        for key in wild:
            if self.server.select(self.type_url, name, self.params(key)) is not None:
                continue
            if key[1] is None:
                parts.append(Part(removed=[name]))
            else:
                pins = pb.ResourceName(name=name)
                pins.dynamic_parameter_constraints.CopyFrom(to_proto(pinned(self.params(key))))
                parts.append(Part(withdrawn=[pins]))
        return parts

    def _replacement(
        self, name: str, old: list[Part], fresh: list[Part], gone: Mapping[Ident, Sent]
    ) -> list[list[Part]]:
        way = self.random.choice(self.server.habits.replaces)
        whole = Part()
        removals = Part()
        for part in old:
            removals.join(part)
        for part in fresh:
            if whole.may_join(part):
                whole.join(part)
        repeated = [[part] for part in fresh if not any(one in whole.resources for one in part.resources)]
        if way == "at-once" and whole.may_join(removals):
            whole.join(removals)
            return [[whole], *repeated]
        if way == "resource-first":
            removals.follows = whole
            return [[whole, removals], *repeated]
        for sent in gone.values():
            self.server.leave_gap((self.type_url, name), sent.offer.shape)
        whole.follows = removals
        return [[removals, whole, *chain] for chain in repeated[:1] or [[]]]

    def _denials(self, name: str) -> list[Part]:
        parts = []
        for key, corrected in self.due_denials(name).items():
            kinds = self.server.habits.negatives
            spoken = tuple(kind for kind in kinds if kind != "silence") or ("bare",)
            if name in self.claims or corrected:  # a client that has it has to hear that it is gone
                kinds = spoken
            if key[1] is None:
                parts += [Part(removed=[name])] if "silence" not in kinds else []
                continue
            said = self.choose_negative(key, kinds)
            parts += [self._denial(name, said)] if said is not None else []
        return parts

    def _denial(self, name: str, said: Negative) -> Part:
        constraints = to_proto(said.shape, self.random) if said.shape is not None else None
        if said.field == "removed":
            return Part(removed=[name])
        if said.field == "errors":
            return Part(errors=[self.error(name, constraints)])
        made = pb.ResourceName(name=name)
        if constraints is not None:
            made.dynamic_parameter_constraints.CopyFrom(constraints)
        return Part(withdrawn=[made])

    def _shared(self, chains: list[list[Part]]) -> list[Part]:
        """In any order that the chains allow, several in one response where they may be."""
        waiting = [[*chain] for chain in chains if chain]
        responses: list[Part] = []
        while waiting:
            chain = self.random.choice(waiting)
            part = chain.pop(0)
            if not chain:
                waiting.remove(chain)
            last = responses[-1] if responses else None
            may = last is not None and part.follows is None and last.may_join(part)
            if last is not None and may and self.server.maybe(self.server.habits.batches):
                last.join(part)
            else:
                responses.append(part)
        return responses

    def _response(self, part: Part) -> Any:
        made = pb.DeltaDiscoveryResponse(type_url=self.type_url, nonce=self.server.nonce())
        made.resources.extend(resource for _, resource in part.resources)
        made.removed_resource_names.extend(part.withdrawn)
        made.removed_resources.extend(part.removed)
        made.resource_errors.extend(part.errors)
        if self.server.maybe():
            made.system_version_info = self.server.nonce()
        self.nonces.add(made.nonce)
        return made


class SotwStream(Stream):
    def receive(self, message: bytes) -> None:
        request = pb.DiscoveryRequest.FromString(message)
        self._read(request)
        if request.type_url not in self.talks:
            self.talks[request.type_url] = SotwTalk(self, request.type_url)
        self.talks[request.type_url].receive(request)


class SotwTalk(Talk):
    def __init__(self, stream: Stream, type_url: str) -> None:
        super().__init__(stream, type_url)
        self.nonce = ""
        self._begun = False

    def receive(self, request: Any) -> None:
        nonce = request.response_nonce
        assert not nonce or nonce in self.nonces, "an ACK of nothing"
        if nonce != self.nonce and self.server.habits.ignores_stale_nonces:
            return
        asked: list[Key] = [(name, None) for name in request.resource_names]
        asked += [_key(each) for each in request.resource_locators]
        if not asked and not self._begun and self.full_state:
            asked = [(WILDCARD, None)]
        new = {key: None for key in asked if key not in self.subscriptions}
        self.subscriptions = dict.fromkeys(asked)
        self.unanswered = {key: None for key in self.unanswered if key in self.subscriptions} | new
        if not self._begun and request.version_info and request.version_info == self._version():
            self._believe()
        self._begun = True
        self.forget()

    def _believe(self) -> None:
        """The client has the present state: nothing need be sent."""
        self.unanswered.clear()
        for name in self.names():
            for ident, (offer, _) in self.chosen(name).items():
                self.sent[ident] = Sent(to_proto(offer.shape), offer)

    def _version(self) -> str:
        return f"state-{self.server.states.get(self.type_url, 0)}" if self.server.habits.honours_versions else ""

    def news(self) -> list[Any]:
        chosen: dict[Ident, tuple[Offer, list[Key]]] = {}
        for name in self.names():
            chosen |= self.chosen(name)
        changed = [
            ident
            for ident, (offer, keys) in chosen.items()
            if ident not in self.sent
            or self.sent[ident].offer.version != offer.version
            or any(key in self.unanswered for key in keys)
        ]
        gone = {ident: sent for ident, sent in self.sent.items() if ident not in chosen}
        errors = self._denials(gone)
        if not (changed or gone or errors or self.unanswered):
            return []
        for ident in gone:
            del self.sent[ident]
        wild = any(key[0] == WILDCARD for key in self.unanswered)
        self.unanswered.clear()
        if self.full_state:
            if not (changed or gone or errors or wild) and self.server.maybe():
                return []
            return [self._response([*chosen], chosen, errors)]
        return self._increments(changed, chosen, errors)

    def _increments(self, changed: list[Ident], chosen: Mapping[Ident, tuple[Offer, list[Key]]], errors: Any) -> Any:
        """Of incremental types a response has whatever is new, or a part of it."""
        pieces: list[tuple[list[Ident], list[Any]]] = [([ident], []) for ident in changed]
        pieces += [([], [error]) for error in errors]
        self.random.shuffle(pieces)
        responses: list[tuple[list[Ident], list[Any]]] = []
        for idents, wrong in pieces:
            if responses and self.server.maybe(self.server.habits.batches):
                responses[-1][0].extend(idents)
                responses[-1][1].extend(wrong)
            else:
                responses.append(([*idents], [*wrong]))
        return [self._response(idents, chosen, wrong) for idents, wrong in responses]

    def _denials(self, gone: Mapping[Ident, Sent]) -> list[Any]:
        habits, errors = self.server.habits, []
        for ident, sent in gone.items():  # of incremental types there is no other word for it: no cache could know
            lost = [key for key in self.lacking(ident[0]) if holds(sent.offer.shape, self.params(key))]
            if ident[2] and lost and (not self.full_state or (not habits.is_silent and self.server.maybe())):
                taken = region(everywhere(self.server.offers(self.type_url, ident[0])))
                if not ident[1] & taken and self.server.maybe():
                    errors.append(self.error(ident[0], self.withdrawal(ident, sent).dynamic_parameter_constraints))
                else:
                    errors += [self.error(ident[0], to_proto(pinned(self.params(key)))) for key in lost]
        for name in {key[0]: None for key in self.subscriptions}:
            for key, corrected in self.due_denials(name).items() if name != WILDCARD else ():
                said = self.choose_negative(key, ("pinned-error",) if corrected else habits.negatives)
                if said is not None:
                    constraints = to_proto(said.shape, self.random) if said.shape is not None else None
                    errors.append(self.error(key[0], constraints))
        return [each for number, each in enumerate(errors) if each not in errors[:number]]

    def _response(self, idents: list[Ident], chosen: Mapping[Ident, tuple[Offer, list[Key]]], errors: Any) -> Any:
        made = pb.DiscoveryResponse(type_url=self.type_url, nonce=self.server.nonce())
        made.version_info = self._version() or self.server.nonce()
        for ident in idents:
            resource = self.resource(ident, chosen[ident][0])
            if ident[2]:
                made.resources.add().Pack(resource)
            else:
                made.resources.append(resource.resource)
        made.resource_errors.extend(errors)
        self.nonce = made.nonce
        self.nonces.add(made.nonce)
        return made


def _key(locator: Any) -> Key:
    return locator.name, tuple(sorted(locator.dynamic_parameters.items()))
