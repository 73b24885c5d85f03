"""Builds what the admin port shows of the configuration: its last load, and what is held back. Nothing here awaits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..builds import running
from ..core.model.facts import Refused
from ..core.model.removal_guard import HeldBack, Loss
from ..errors import Problem
from ..file_watch import POLL
from ..release import __version__
from ..sources.files import LoadReport
from .read_model import Row, time_of_day

NAMES = 20  # listed of the resources that a change which is held back would remove


@dataclass(slots=True)
class ConfigLoads:
    """The reports of the last load of the configuration, and of the last one that was accepted."""

    paths: tuple[str, ...]
    last: LoadReport | None = None
    good: LoadReport | None = None
    polling: Callable[[], str] = lambda: ""  # returns why the files are polled; empty if they are watched

    def record(self, report: LoadReport) -> Refused | None:
        """Note a report. If the load was refused, return a fact with the problems that the last load did not have."""
        before = set(self.last.errors) if self.last is not None else set()
        self.last = report
        if report.is_accepted:
            self.good = report
        if not report.errors:
            return None
        news = tuple(str(problem) for problem in report.errors if problem not in before)
        return Refused(news, len(report.errors) - len(news))

    @property
    def held(self) -> HeldBack | None:
        return self.last.held if self.last is not None else None


def config(loads: ConfigLoads, admin: str) -> Row:
    """OPS-8: show whether the server serves what is on disk, and if not, why. `admin`: address of the admin port."""
    return {
        "version": __version__,
        "build": running(),
        "from": list(loads.paths),
        "reload": _reload(loads.polling()),
        "last_load": _load(loads.last) if loads.last is not None else None,
        "last_good_load": _load(loads.good) if loads.good is not None else None,
        "held_back": held_back(loads.held) | _remedies(loads.held, admin) if loads.held is not None else None,
    }


def _reload(polling: str) -> Row:
    """Say how the server notices changes of the files."""
    return {"by": "polling", "every_seconds": POLL, "why": polling} if polling else {"by": "events"}


def held_back(held: HeldBack) -> Row:
    """OPS-13: describe a change that is held back: what it would remove, and why it is held back."""
    return {
        "id": held.id,
        "since": time_of_day(held.since),
        "why": list(held.reasons),
        "removals": [_loss(each) for each in held.losses],
    }


def _loss(loss: Loss) -> Row:
    return {
        "type": loss.label,
        "type_url": loss.type_url,
        "removed": len(loss.names),
        "of": loss.of,
        "names": list(loss.names[:NAMES]),
    }


def _remedies(held: HeldBack, admin: str) -> Row:
    return {
        "confirm": {
            "command": f"xdsprism confirm --admin {admin} --id {held.id}",
            "request": f"POST /api/config/confirm?id={held.id}",
        }
    }


def _load(report: LoadReport) -> Row:
    return {
        "time": time_of_day(report.at),
        "ok": report.is_accepted,
        "files": report.files,
        "resources": report.resources,
        "errors": [_problem(each) for each in report.errors],
        "warnings": [_problem(each) for each in report.warnings],
    }


def _problem(each: Problem) -> Row:
    return {"file": each.file or None, "line": each.line or None, "path": each.path or None, "message": each.message}
