"""The transports that tests run on.

`make test` runs on the default one, and `make interop` runs the same tests on the other:
XDSPRISM_TEST_ENGINES=grpcio,h2 pytest tests/wire     both
"""

from __future__ import annotations

import os

from xdsprism.core.model.settings import ENGINE

ENGINES = tuple(os.environ.get("XDSPRISM_TEST_ENGINES", ENGINE).split(","))
