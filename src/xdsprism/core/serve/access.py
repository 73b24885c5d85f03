"""What the client of one stream may have, by the policy in force: the grant, its claim, and the tables that it reads.

The first request names the node, which finds the grant. When the policy changes, the stream finds its grant anew and
its sessions take that with the next request or poll: until then work that runs in steps may be in progress.
"""

from __future__ import annotations

from collections.abc import Callable

from ..model.events import Node
from ..model.steps import Steps
from ..model.store import Store
from ..model.table import Table
from ..model.types import TypeUrl
from ..policy.globs import NameGlobs
from ..policy.grant import Grant
from ..session.context import StreamContext
from ..session.session import Session

GrantOf = Callable[[Node], Grant | None]


def ungranted(_: Node) -> Grant | None:
    """Return None: there is no policy."""
    return None


class StreamAccess:
    """Decides which table each session of a stream reads, and with which params."""

    __slots__ = ("_context", "_grant_of", "_store", "is_changed")

    def __init__(self, store: Store, context: StreamContext, grant_of: GrantOf) -> None:
        """`grant_of`: what a node may have by the policy in force, given who the client proved to be."""
        self._store = store
        self._context = context
        self._grant_of = grant_of
        self.is_changed = False  # the grant is another one, and the sessions have not taken it yet

    def identify(self, node: Node) -> None:
        """Find what the client may have that says it is this node, and the params of its plain subscriptions."""
        self._apply(node, self._grant_of(node))

    def find_anew(self, node: Node) -> bool:
        """Find the grant again, because the policy changed. Return whether it is another one."""
        before, found = self._context.grant, self._grant_of(node)
        self._apply(node, found)
        if found == before:
            return False
        self.is_changed = True
        return True

    def _apply(self, node: Node, grant: Grant | None) -> None:
        """Note the grant. Sessions that are there go on as before, until `taking`."""
        params, context = self._context.settings.params_of(node), self._context
        context.grant = grant
        context.claim = grant.claim_node(params) if grant is not None else None
        context.params = context.claim.params if context.claim is not None else params

    def taking(self, sessions: dict[TypeUrl, Session]) -> Steps[None]:
        """Let all sessions take the grant that changed, in steps."""
        self.is_changed = False
        for type_url, session in [*sessions.items()]:
            yield from self.preparing(type_url)
            yield from session.regrant(self.table(type_url), self._context)
            self._store.discard(type_url)

    def preparing(self, type_url: TypeUrl) -> Steps[None]:
        """Make the table that the client may read of a type, in steps, if it is not there."""
        yield from self._store.allowing(type_url, self._names(type_url, self._context.grant))

    def table(self, type_url: TypeUrl) -> Table:
        """Return what the client may have of a type."""
        return self._store.allowed(type_url, self._names(type_url, self._context.grant))

    def has_table(self, type_url: TypeUrl, first: Node | None) -> bool:
        """Whether the table is there that the client may read. `first`: the node, in a stream's first request."""
        grant = self._grant_of(first) if first is not None else self._context.grant
        return self._store.has_allowed(type_url, self._names(type_url, grant))

    @staticmethod
    def _names(type_url: TypeUrl, grant: Grant | None) -> NameGlobs | None:
        """Return the names of a type that this grant allows; None: all of them."""
        return grant.visible(type_url) if grant is not None else None
