"""These tests compare the compiled build with the interpreted one: `make test-compiled` runs them, in the compiled."""

from __future__ import annotations

from xdsprism.builds import running

collect_ignore_glob = [] if running() == "compiled" else ["test_*.py"]
