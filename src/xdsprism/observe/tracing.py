"""Exports a trace of each published revision by OpenTelemetry (the extra `otel`), if the environment configures it.

    xdsprism.publish                 from the publication to the last response
      xdsprism.push                  for each type: from the first response to the last
        links ─▶ xdsprism.ack        for the slowest ACKs: from the response to the ACK; each is a trace of its own

Spans are made when a revision is over (revision_spans.py), with the times at which things happened. Without the
variables of OpenTelemetry nothing of this is imported, and no fact is looked at.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ..core.model.facts import Fact
from ..core.model.store import Applied, Store
from ..core.model.types import TypeUrl
from ..release import __version__
from .revision_spans import Revision, RevisionSpans

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

log = logging.getLogger("xdsprism")

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
JSON = "http/json"  # the protocol that there is an exporter for
UNSPOKEN = (
    "no traces: OTEL_EXPORTER_OTLP_PROTOCOL is %s, and only http/json is spoken: set it to that, and the endpoint to "
    "the port of the collector for HTTP (usually 4318)"
)
FLUSH = 2.0  # seconds that a server waits at its end for the collector to take the last traces
LOOK = 0.5  # seconds between two looks at which revisions are over
NANO = 1_000_000_000


def is_configured(environment: Mapping[str, str]) -> bool:
    """Whether the standard variables ask for traces: an endpoint is named, and neither the SDK nor traces are off."""
    if not any(environment.get(name) for name in ENDPOINTS):
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    return environment.get("OTEL_SDK_DISABLED", "").lower() != "true" and exporter == "otlp"


def begin_tracing(store: Store, label: Callable[[TypeUrl], str]) -> Tracing | None:
    """Trace the revisions of a store, if the environment asks for it; else, and without the extra, return None."""
    if not is_configured(os.environ):
        return None
    protocol = next(filter(None, map(os.environ.get, PROTOCOLS)), JSON)
    if protocol != JSON:
        log.warning(UNSPOKEN, protocol)
        return None
    try:
        provider = _provider()
    except ImportError as error:
        text = "OTEL_EXPORTER_OTLP_ENDPOINT asks for traces, and %s is not installed: pip install 'xdsprism[otel]'"
        log.warning(text, error.name)
        return None
    # A batch that is lost is one line; each attempt before that would be another.
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)
    return Tracing(store, label, provider)


def _provider() -> TracerProvider:
    from opentelemetry.exporter.otlp.json.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 # an extra
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    named = {} if _names_service(os.environ) else {"service.name": "xdsprism"}
    resource = Resource.create({**named, "service.version": __version__})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _names_service(environment: Mapping[str, str]) -> bool:
    attributes = environment.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")
    return bool(environment.get("OTEL_SERVICE_NAME")) or any(
        each.strip().startswith("service.name=") for each in attributes
    )


class Tracing:
    """A reader of facts: `hub.readers.append(tracing)`. `run` exports; the exporter's own thread sends."""

    def __init__(
        self,
        store: Store,
        label: Callable[[TypeUrl], str],
        provider: TracerProvider,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.flush = FLUSH
        self._store = store
        self._provider = provider
        self._tracer = provider.get_tracer("xdsprism", __version__)
        self._wall = wall
        self._spans = RevisionSpans(label)
        store.listeners.append(self._applied)

    def __call__(self, facts: Sequence[Fact]) -> None:
        self._spans.see(facts, self._wall())

    def _applied(self, applied: Applied) -> None:
        self._spans.published(applied, self._wall())

    async def run(self) -> None:
        """Export the revisions that are over, until cancelled."""
        while True:
            await asyncio.sleep(LOOK)
            for revision in self._spans.take(self._wall()):
                self._export(revision)
                await asyncio.sleep(0)

    async def close(self) -> None:
        """Export what is left, and wait until the exporter has sent it, for `flush` seconds at most."""
        self._store.listeners.remove(self._applied)
        for revision in self._spans.take_all():
            self._export(revision)
        loop, sent = asyncio.get_running_loop(), asyncio.Event()

        def send() -> None:
            self._provider.shutdown()
            with suppress(RuntimeError):  # the loop is closed by now
                loop.call_soon_threadsafe(sent.set)

        # No thread of the loop's: the end of the program waits for those, and the exporter tries again and again.
        threading.Thread(target=send, name="xdsprism traces", daemon=True).start()
        try:
            async with asyncio.timeout(self.flush):
                await sent.wait()
        except TimeoutError:
            log.warning("the collector did not take the last traces in %g s: they are lost", self.flush)

    def _export(self, revision: Revision) -> None:
        """Make the spans of a revision."""
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415 # an extra

        root = self._tracer.start_span(
            "xdsprism.publish",
            start_time=_nanoseconds(revision.at),
            attributes={
                "xdsprism.revision": revision.number,
                "xdsprism.changed": revision.changed.total(),
                "xdsprism.types": sorted(revision.changed),
            },
        )
        if root.is_recording():  # the sampler may leave a revision out
            parent = set_span_in_context(root)
            for label, push in revision.pushes.items():
                shown = [ack for ack in revision.slowest if ack.label == label]
                span = self._tracer.start_span(
                    "xdsprism.push",
                    context=parent,
                    start_time=_nanoseconds(push.first),
                    attributes={
                        "xdsprism.revision": revision.number,
                        "xdsprism.type": label,
                        "xdsprism.responses": push.responses,
                        "xdsprism.resources": push.resources,
                        "xdsprism.acks": push.acks,
                        "xdsprism.nacks": push.nacks,
                        "xdsprism.acks_without_link": push.acks - len(shown),
                    },
                )
                for ack in shown:
                    self._link(span, label, ack.at, ack.seconds)
                if push.nacks:
                    _mark(span, f"{push.nacks} NACK(s)")
                span.end(_nanoseconds(push.last))
        root.end(_nanoseconds(revision.last))

    def _link(self, push: Span, label: str, at: float, seconds: float) -> None:
        """Make the span of an ACK, a trace of its own, and link it with the push in both directions."""
        from opentelemetry.context import Context  # noqa: PLC0415 # an extra
        from opentelemetry.trace import Link  # noqa: PLC0415

        ack = self._tracer.start_span(
            "xdsprism.ack",
            context=Context(),
            start_time=_nanoseconds(at - seconds),
            links=[Link(push.get_span_context())],
            attributes={"xdsprism.type": label},
        )
        ack.end(_nanoseconds(at))
        push.add_link(ack.get_span_context())


def _mark(span: Span, text: str) -> None:
    """Mark a push as failed. Why a client NACKed is on the admin port: its words may quote what it was sent."""
    from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 # an extra

    span.set_status(Status(StatusCode.ERROR, text))


def _nanoseconds(at: float) -> int:
    return int(at * NANO)
