"""Make the requests of one stream to a server: subscriptions of each type, ACKs and NACKs.

Each stream begins with a new `StreamRequests`. For each type it has the keys on the wire (`RequestKeys`), a request
builder (`RequestBuilder`), and the answers that wait for their time (`HeldAnswers`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..model.dialect import RequestForm, without_plain
from ..model.events import WILDCARD, Key, Rejection
from ..model.responses import Response
from ..model.steps import Steps
from ..model.types import TypeUrl
from .request_keys import RequestKeys, worded
from .request_pacing import HeldAnswers
from .requests import AckOrNack, Asked, DeltaRequestBuilder, RequestBuilder, SotwRequestBuilder

if TYPE_CHECKING:
    from .upstream import HeldResources, Upstream


class StreamRequests:
    """The requests of one stream, by type."""

    def __init__(self, upstream: Upstream, holdings: HeldResources) -> None:
        self._upstream = upstream
        self._holdings = holdings
        self._builders: dict[TypeUrl, RequestBuilder] = {}
        self._keys: dict[TypeUrl, RequestKeys] = {}
        self._answers = HeldAnswers()
        self._unsaid: dict[TypeUrl, list[Key]] = {}  # wanted, and in no request on this stream yet
        self.unaskable: list[tuple[TypeUrl, Key]] = []  # wanted, but SotW can't subscribe to this type

    # -- subscriptions

    def begin(self, type_url: TypeUrl, wanted: Iterable[Key], version: str) -> None:
        """Begin with the subscriptions to a type that outlive streams, but those in quarantine.

        version: the version of the last ACKed SotW response (CLI-5).
        """
        upstream, quarantine = self._upstream, self._upstream.quarantine
        if self._lacks(type_url):
            self.unaskable += [(type_url, key) for key in wanted]
            return
        if quarantine:
            wanted = [key for key in wanted if not quarantine.keeps((type_url, key))]
        if not wanted:
            return
        self._unsaid[type_url] = [*wanted]
        spec, form = self._holdings.spec(type_url), upstream.form
        keys_on_wire = self._keys[type_url] = RequestKeys(form, probes=upstream.dialect.probes)
        keys = worded(keys_on_wire, wanted)
        if upstream.delta:
            self._builders[type_url] = DeltaRequestBuilder(
                spec,
                keys,
                lambda: self._find_versions(type_url),
                form,
                is_listed=lambda name: self._holdings.is_listed(type_url, name),
            )
            return
        # In SotW, version_info stands for all resources of the type. If one of them is missing here, a server that
        # trusts the version would not send it, so the first request has none then (CLI-5). A relay trusts it for a
        # wildcard only; otherwise a version tells a relay just that the client holds something, perhaps newer than the
        # relay's disk cache (PRX-25).
        believed = not upstream.is_relay or [*keys] == [Key(WILDCARD)]
        honest = not believed or self._holdings.held(upstream, type_url).complete
        self._builders[type_url] = SotwRequestBuilder(
            spec, keys, version if honest else "", form, is_believed=not upstream.is_relay
        )

    def want(self, type_url: TypeUrl, key: Key) -> bool:
        """Subscribe to one more key; return False if the type has to begin first (`begin`)."""
        builder = self._builders.get(type_url)
        if self._lacks(type_url):
            self.unaskable.append((type_url, key))
        elif builder is None:
            return False
        else:
            self._unsaid.setdefault(type_url, []).append(key)
            for each in self._keys[type_url].want(key):
                builder.want(each)
            # CLI-4: a server may ignore a request without its newest nonce, so release held ACKs first.
            if not self._upstream.delta:
                for answer in self._answers.reviewed(type_url):
                    self.decide_answer(type_url, answer.nonce, None)
        return True

    def unwant(self, type_url: TypeUrl, key: Key) -> bool:
        """Unsubscribe from a key; return whether this stream asks for its type at all."""
        builder = self._builders.get(type_url)
        if builder is None:
            return False
        for each in self._keys[type_url].unwant(key):
            builder.unwant(each)
        return True

    def polling(self, now: float) -> Steps[list[tuple[TypeUrl, Asked]]]:
        """Return the requests to write now, in steps. A subscription that is added meanwhile may go out later."""
        self.note_sent(now)
        found: list[tuple[TypeUrl, Asked]] = []
        for type_url, builder in [*self._builders.items()]:
            found += [(type_url, asked) for asked in (yield from builder.polling())]
        return found

    def note_sent(self, now: float) -> None:
        """Tell the quarantine which subscriptions go out now."""
        unsaid, self._unsaid = self._unsaid, {}
        for type_url, keys in unsaid.items():
            self._upstream.quarantine.asked(type_url, keys, now)

    def asks(self, type_url: TypeUrl) -> bool:
        """Whether this stream ever subscribed to the type (NAK-22)."""
        return type_url in self._builders

    @property
    def is_behind(self) -> bool:
        """Whether to poll again, once the requests are written."""
        return any(builder.is_behind for builder in self._builders.values())

    @property
    def needs_stream(self) -> bool:
        """Whether there is a wildcard that only the first request of a stream can ask for (WLD-5)."""
        return any(builder.keys.needs_stream for builder in self._builders.values())

    @property
    def versions(self) -> dict[TypeUrl, str]:
        """The SotW versions of the last ACKed responses, for the next stream (CLI-5)."""
        builders = self._builders.items()
        return {type_url: each.version for type_url, each in builders if isinstance(each, SotwRequestBuilder)}

    def _find_versions(self, type_url: TypeUrl) -> Steps[Mapping[str, str]]:
        """Return the versions for `initial_resource_versions`, in steps."""
        return (yield from self._holdings.find_held(self._upstream, type_url)).versions

    def _lacks(self, type_url: TypeUrl) -> bool:
        """Whether the stream can't carry the type: virtual hosts exist in delta only (VHD-1)."""
        return not self._upstream.delta and self._holdings.spec(type_url).on_demand

    # -- the form of subscriptions

    def says_names(self, type_url: TypeUrl) -> bool:
        """Whether this stream subscribes to anything of the type by a plain name."""
        return type_url in self._builders and self._builders[type_url].keys.says_names

    @property
    def has_locators(self) -> bool:
        """Whether the stream has any locator, which a server might refuse."""
        return any(keys.has_locators for keys in self._keys.values())

    def decide(self, form: RequestForm) -> None:
        """Set the form that the server understands, and drop the subscriptions that only probed for it (PRX-32)."""
        for type_url, keys in self._keys.items():
            if self._builders[type_url].decide(form, keys.decide(form)):
                keys.never_asked_for_all()

    def without_probes(self, response: Response) -> tuple[Response, list[str]]:
        """Remove the answers to probes from a response; return it, and the names that the answers had."""
        keys = self._keys.get(response.type_url)
        if keys is None or not keys.has_probed:
            return response, []
        left, names = without_plain(response, keys.is_probed)
        return left, [*filter(None, names)]

    # -- ACKs and NACKs

    def answer(
        self, type_url: TypeUrl, answer: AckOrNack, now: float, *, fruitful: bool = True, wait: float = 0.0
    ) -> None:
        """Queue an ACK or NACK: for now, or for later if the exchange is fruitless (`Pace`) or `wait` says so."""
        if self._upstream.connected:
            self._send(self._answers.add(type_url, answer, now, fruitful=fruitful, wait=wait))

    def decide_answer(self, type_url: TypeUrl, nonce: str, error: Rejection | None) -> None:
        """Release the answer to a response that was held back for review, as an ACK or a NACK (PRX-18).

        In SotW an answer also lists the subscriptions, so answers to earlier responses of the type go out before it.
        """
        self._send(self._answers.decide(type_url, nonce, error, alone=self._upstream.delta))

    @property
    def answer_due(self) -> float | None:
        """When the next answer that was held back goes out."""
        return self._answers.due

    def release(self, now: float) -> None:
        """Send the answers whose time has come."""
        self._send(self._answers.release(now))

    def _send(self, ready: list[tuple[TypeUrl, AckOrNack]]) -> None:
        """Pass answers to their request builders."""
        for type_url, answer in ready:
            self._builders[type_url].answer(answer)
        if ready:
            self._upstream.wake()
