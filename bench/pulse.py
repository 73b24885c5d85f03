"""How long an event loop answers nobody, as seen from within it."""

from __future__ import annotations

import asyncio
import time

BEAT = 0.002  # seconds that the task in the loop sleeps


class Pulse:
    """Notes the longest time between two turns of the loop, and the most processor time of its thread in one."""

    def __init__(self) -> None:
        self.longest = self.busiest = 0.0

    async def run(self) -> None:
        while True:
            start, spent = time.perf_counter(), time.thread_time()
            await asyncio.sleep(BEAT)
            self.longest = max(self.longest, time.perf_counter() - start - BEAT)
            self.busiest = max(self.busiest, time.thread_time() - spent)

    def reset(self) -> None:
        self.longest = self.busiest = 0.0

    def take(self) -> str:
        """Both in milliseconds, as a line; and begin again."""
        line = f"{self.longest * 1e3} {self.busiest * 1e3}"
        self.reset()
        return line
