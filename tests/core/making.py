"""A bench whose store has a provider: plain functions, which are run when the test says so."""

from __future__ import annotations

from collections.abc import Callable

from tests.core.support import Bench, Peer
from xdsprism.core.model.settings import Settings
from xdsprism.core.model.types import CLUSTER, Params, TypeUrl, make_variant
from xdsprism.core.provide.provider import Provider, ProviderJob
from xdsprism.core.provide.providing import Providing
from xdsprism.core.provide.recorded import RecordedParams
from xdsprism.core.session.interest import Interest

Make = Callable[[str, Params], str | None]


async def never(name: str, params: Params) -> object:
    raise AssertionError("the shell's business")


class MadeBench(Bench):
    """`made` lists every call: the name, and the class of those it was for."""

    def __init__(
        self,
        make: Make,
        *keys: str,
        type_url: TypeUrl = CLUSTER,
        ttl: float | None = None,
        at_once: int = 64,
        idle: int = 100,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(settings or Settings())
        self.make = make
        self.made: list[tuple[str, dict[str, str]]] = []
        self.jobs: list[ProviderJob] = []
        self.providing.idle = idle
        self.ttl = ttl
        self.provider = Provider(type_url, never, keys, "provider p", at_once=at_once)
        self.providing.add(self.provider)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.providing = Providing(self.store)
        self.interest = Interest(self.providing)
        self.store.listeners.append(self._applied)

    def turn(self) -> list[ProviderJob]:
        """Begin what is to be begun."""
        jobs = self.providing.turn(self.now)
        self.made += [(job.name, dict(job.category)) for job in jobs]
        self.jobs += jobs
        self.facts += self.providing.facts
        self.providing.facts.clear()
        return jobs

    def run(self) -> None:
        """Begin and end, until there is nothing to do."""
        self.turn()
        while self.jobs:
            for job in [*self.jobs]:
                self.end(job)
            self.turn()

    def end(self, job: ProviderJob) -> None:
        self.jobs.remove(job)
        record = job.record()
        try:
            body = self.make(job.name, RecordedParams(record))
        except RuntimeError as error:
            self.providing.failed(job, str(error), self.now, 0.5)
            return
        whose = record.close()
        variant = make_variant(job.provider.type_url, job.name, body.encode(), whose) if body is not None else None
        self.providing.made(job, whose, variant, self.now, self.ttl)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.run()


def tier(name: str, params: Params) -> str | None:
    if name.startswith("no"):
        return None
    return "gold" if params["env"] == "prod" else "basic"


class Source:
    """A provider whose mind a test changes."""

    def __init__(self, answer: str | None = "1") -> None:
        self.answer = answer
        self.error = ""

    def __call__(self, name: str, params: Params) -> str | None:
        if self.error:
            raise RuntimeError(self.error)
        return self.answer


def hears(bench: MadeBench, peer: Peer) -> list[str]:
    bench.run()
    return peer.hears()
