"""What holds for every test."""

from __future__ import annotations

import gc
import logging
import os

from hypothesis import HealthCheck, Phase, settings

from tests.support.poller import of_the_past

# The same examples in every run, so that a red suite is red again; and no deadline, since machines are busy.
# `HYPOTHESIS_PROFILE=explore make unit` goes looking for what these miss.
settings.register_profile("steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", settings.get_profile("steady"), derandomize=False, max_examples=2_000)
# For scripts/breaks.py, which asks whether there is a counterexample, and not for the shortest.
settings.register_profile("brief", settings.get_profile("steady"), phases=(Phase.explicit, Phase.generate))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


def pytest_collection_finish() -> None:
    """Keep what thousands of tests are made of away from the garbage collector, which tests that count objects run."""
    gc.collect()
    gc.freeze()


def _is_of_now(record: logging.LogRecord) -> bool:
    return not of_the_past(record.getMessage(), record.exc_info[1] if record.exc_info else None)


logging.getLogger("asyncio").addFilter(_is_of_now)  # for tests that take any complaint in the log for a fault
