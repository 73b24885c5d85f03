"""Runs by their seeds; and how one that fails is cut down to what matters."""

from __future__ import annotations

from dataclasses import fields, replace
from random import Random

from tests.strangers import negatives
from tests.strangers.upstream import Habits
from tests.strangers.world import SUBJECTS, Run, script
from xdsprism.core.relay.relaying import LINGER


def some(random: Random, things: tuple[str, ...]) -> tuple[str, ...]:
    """One of them, or several."""
    return tuple(random.sample(things, random.choice((1, 1, 2, len(things)))))


def kinds(random: Random, *, delta: bool) -> tuple[str, ...]:
    """Of negative answers. Who says what holds for more than who asked does not pass over it on a new stream."""
    chosen = some(random, negatives.DELTA if delta else negatives.SOTW)
    told = tuple(kind for kind in chosen if not kind.startswith("wider"))
    return told if {"silence", "omission"} & {*chosen} else chosen


def habits(random: Random) -> Habits:
    delta = random.random() < 0.6
    honours = random.random() < 0.4
    rewords = random.random() < 0.4
    return Habits(
        delta=delta,
        negatives=kinds(random, delta=delta),
        replaces=some(random, ("at-once", "removal-first", "resource-first")),
        rewords=rewords,
        rewords_removals=rewords and random.random() < 0.4,
        batches=random.choice((0.0, 0.5, 1.0)),
        repeats=random.random() < 0.3,
        honours_versions=honours,
        versions="unique" if honours or random.random() < 0.5 else "counted",
        ignores_stale_nonces=random.random() < 0.5,
    )


def make(seed: int, steps: int = 24) -> Run:
    random = Random(f"run {seed}")
    chosen = habits(random)
    subjects = random.choice((SUBJECTS, SUBJECTS[:1], SUBJECTS[:1], SUBJECTS[:2], SUBJECTS[2:3], SUBJECTS[2:3]))
    return Run(seed, chosen, random.choice((0.0, LINGER)), subjects, tuple(script(random, steps)))


def cut_down(run: Run, effort: int = 400) -> Run:
    """The same failure, or another one, with plainer habits and fewer steps."""
    plain = Habits(delta=run.habits.delta, negatives=run.habits.negatives)
    for each in fields(Habits):
        simpler = replace(run, habits=replace(run.habits, **{each.name: getattr(plain, each.name)}))
        if simpler.failure() is not None:
            run = simpler
    size = max(1, len(run.steps) // 2)
    while size and effort:
        start = 0
        while start < len(run.steps) and effort:
            effort -= 1
            shorter = replace(run, steps=run.steps[:start] + run.steps[start + size :])
            if shorter.failure() is not None:
                run = shorter
            else:
                start += size
        size = size // 2
    return run


def story(run: Run) -> str:
    """What happened, for readers."""
    lines = [f"seed {run.seed}, linger {run.linger:g}, {run.habits}"]
    try:
        run.play(lines.append)
    except Exception as error:  # noqa: BLE001 # it is what the story ends with
        lines.append(f"{type(error).__name__}: {error}")
    return "\n".join(lines)
