"""Send requests to the admin port of a running server or relay."""

from __future__ import annotations

from typing import Any

from ..errors import XdsError

TIMEOUT = 10.0


def request(admin: str, path: str, method: str = "GET") -> tuple[int, dict[str, Any]]:
    """Return the HTTP status and the JSON body of the answer. Raises XdsError if there is no answer."""
    import json
    from http.client import HTTPConnection, HTTPException

    host, _, port = admin.rpartition(":")
    connection = HTTPConnection(host.strip("[]"), int(port), timeout=TIMEOUT)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        answer: dict[str, Any] = json.loads(response.read())
    except (OSError, HTTPException, ValueError) as error:
        raise XdsError(f"no answer from the admin port {admin}: {error}") from error
    finally:
        connection.close()
    return response.status, answer
