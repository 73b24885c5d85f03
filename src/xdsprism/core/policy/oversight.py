"""Say which other clients, and what of them, a client may be shown (CSDS).

| policy                                                   | clients                          | resources              |
|----------------------------------------------------------|----------------------------------|------------------------|
| none: everybody may have everything                      | all                              | all                    |
| the caller's rule allows everything, on any node         | all                              | those that it allows   |
| another rule is for the caller                           | those that the same rule is for  | those that it allows   |
| no rule is for the caller, and `default: deny`           | the call is refused              |                        |

A rule is a tenant: what one rule lets its clients have, another one may keep from its own. So a caller is shown no
client, name or number that is another rule's. In between, while a changed policy reaches one stream after the other, a
stream that still has the grant of the policy before is shown to nobody but those who may see all.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..model.types import TypeUrl
from .grant import Grant


@dataclass(frozen=True, slots=True)
class Viewer:
    """Somebody who asks about clients. `grant`: what itself may have; None: there is no policy."""

    grant: Grant | None

    @property
    def refusal(self) -> str:
        """Why the caller is shown nothing at all; empty: it may ask."""
        return self.grant.reason if self.grant is not None else ""

    def sees(self, grant: Grant | None) -> bool:
        """Whether a client that has this grant is shown."""
        mine = self.grant
        return mine is None or mine.is_unlimited or mine is grant

    def sees_resource(self, type_url: TypeUrl, name: str) -> bool:
        """Whether a resource of this name is shown."""
        return self.grant is None or self.grant.denies(type_url, name) is None
