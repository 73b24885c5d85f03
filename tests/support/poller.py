"""What gRPC for asyncio says of the past: it has one poller for all loops, and those of earlier tests are closed."""

from __future__ import annotations


def of_the_past(message: str, error: BaseException | None) -> bool:
    """Whether this is an event for a loop that was before. Ours runs, so it is not about anything of ours."""
    return "PollerCompletionQueue" in message and str(error) == "Event loop is closed"
