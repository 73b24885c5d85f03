"""Send requests to the admin port of a running server or relay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import ConfigError, UsageError, XdsError
from .options import Address
from .variables import choose_typed

if TYPE_CHECKING:
    import ssl
    from http.client import HTTPConnection, HTTPResponse

F = TypeVar("F", bound=Callable[..., Any])

TIMEOUT = 10.0
MARK = "x-xdsprism"  # a header that every answer of the admin port has
_RIGHT = "the address after admin= in the line `xdsprism: ready` is the admin port"
_WRONG_HTTP = f"answers HTTP, but is not the admin port of a server or relay of xdsprism: {_RIGHT}"
SYSTEM = "system"  # for --admin-ca: the authorities that this machine trusts


@dataclass(frozen=True, slots=True)
class AdminClient:
    """An admin port, and how to get in."""

    address: str
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    token_file: str | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            missing = "--admin-cert" if self.cert is None else "--admin-key"
            raise UsageError(f"a certificate and its key go together: give {missing} too")
        if self.cert is not None and self.ca is None:
            raise UsageError("--admin-cert needs --admin-ca: without it the admin port is asked in plain text")

    def request(self, path: str, method: str = "GET") -> tuple[int, dict[str, Any]]:
        """Return the HTTP status and the JSON body of the answer. Raises XdsError if there is none."""
        import json

        with self._exchange(path, method) as response:
            answer: dict[str, Any] = json.loads(response.read())
        if response.status == 401:
            raise XdsError(f"the admin port {self.address} {self._token_fault()}")
        return response.status, answer

    def lines(self, path: str, query: str, silence: float) -> Iterator[str]:
        """Yield the lines of an answer that has no end. Raises XdsError if there is none, or it ends otherwise.

        silence: seconds without a byte, after which the server counts as lost
        """
        import json

        with self._exchange(f"{path}?{query}", "GET", silence) as response:
            if response.status == 401:
                raise XdsError(f"the admin port {self.address} {self._token_fault()}")
            if response.status != 200:
                raise XdsError(f"{self.address}: {json.loads(response.read()).get('error', response.status)}")
            while line := response.readline():
                yield line.decode(errors="replace").rstrip("\r\n")

    @contextmanager
    def _exchange(self, path: str, method: str, silence: float = TIMEOUT) -> Iterator[HTTPResponse]:
        """Send a request, and give the response to the block, whose errors of transport become XdsErrors too."""
        import ssl
        from http.client import BadStatusLine, HTTPException, RemoteDisconnected

        headers = self._headers()
        connection = self._connection(silence)
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            if response.getheader(MARK) is None:
                raise XdsError(f"{self.address} {_WRONG_HTTP}")
            yield response
        except ssl.SSLError as error:
            raise XdsError(f"the admin port {self.address} {self._tls_fault(error)}") from error
        except (OSError, HTTPException, ValueError) as error:
            hint = self._plain_hint(error)
            is_other = isinstance(error, BadStatusLine) and not isinstance(error, RemoteDisconnected)
            what = "what came is not HTTP/1" if is_other else error
            raise XdsError(f"no answer from the admin port {self.address}: {what}{hint}") from error
        finally:
            connection.close()

    def ask(self, path: str, **query: object) -> tuple[int, dict[str, Any]]:
        """Do what `request` does, with a query. A value of None is left out."""
        from urllib.parse import urlencode

        given = {key: value for key, value in query.items() if value is not None}
        return self.request(f"{path}?{urlencode(given)}")

    def page(self, path: str, **query: object) -> dict[str, Any]:
        """Return a page of the API. Raises XdsError with what the server says if there is none."""
        status, answer = self.ask(path, **query)
        if status != 200:
            raise XdsError(f"{self.address}: {answer.get('error', status)}")
        return answer

    def ask_about(
        self, page: str, type_url: str, name: str, params: dict[str, str], client: str | None = None
    ) -> dict[str, Any]:
        """Ask a page of the API about a resource, params and a client. Raises XdsError if there is no such resource."""
        from urllib.parse import urlencode

        from .asking import missing

        given = [("type", type_url), ("name", name), *(("param", f"{key}={value}") for key, value in params.items())]
        given += [("node", client)] if client is not None else []
        status, answer = self.request(f"/api/{page}?{urlencode(given)}")
        if status == 404 and client is not None:
            raise XdsError(f"{client}: {answer.get('error', status)}")
        if status == 404:
            raise missing(type_url, name, answer.get("similar", []))
        if status != 200:
            raise XdsError(f"{self.address}: {answer.get('error', status)}")
        return answer

    def _headers(self) -> dict[str, str]:
        if self.token_file is None:
            return {}
        from ..admin.tokens import first_token

        try:
            return {"authorization": f"Bearer {first_token(self.token_file)}"}
        except ConfigError as error:
            raise XdsError(str(error)) from error

    def _connection(self, timeout: float) -> HTTPConnection:
        from http.client import HTTPConnection, HTTPSConnection

        host, _, port = self.address.rpartition(":")
        host = host.strip("[]")
        if self.ca is None:
            return HTTPConnection(host, int(port), timeout=timeout)
        return HTTPSConnection(host, int(port), timeout=timeout, context=self._context(self.ca))

    def _context(self, ca: str) -> ssl.SSLContext:
        """Make the TLS settings. Raises XdsError, which names the file that can't be used."""
        import ssl

        file = ca
        try:
            context = ssl.create_default_context(cafile=None if ca == SYSTEM else ca)
            if self.cert is not None:
                file = f"{self.cert} with the key {self.key}"
                context.load_cert_chain(self.cert, self.key, password="")
        except (OSError, ValueError) as error:  # an ssl.SSLError is an OSError too
            why = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise XdsError(
                f"{file}: can't be used for TLS: {why}; it should be PEM, and the key not encrypted"
            ) from error
        return context

    def _tls_fault(self, error: ssl.SSLError) -> str:
        """Say why TLS failed, and what to do."""
        import ssl

        reason = error.reason or str(error)
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"has a certificate that is not trusted: {error.verify_message}: does --admin-ca name its authority?"
        if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
            return "speaks plain text: leave out --admin-ca"
        if reason == "TLSV13_ALERT_CERTIFICATE_REQUIRED" or (self.cert is None and "HANDSHAKE_FAILURE" in reason):
            return "demands a certificate of its clients: give --admin-cert and --admin-key"
        if reason in ("TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_BAD_CERTIFICATE", "SSLV3_ALERT_CERTIFICATE_EXPIRED"):
            return f"does not accept the certificate in {self.cert}: {reason}"
        return f"could not be asked over TLS: {reason}"

    def _plain_hint(self, error: Exception) -> str:
        """Return a remedy if the port was asked in plain text, and closed the connection instead of answering."""
        from http.client import BadStatusLine

        line = str(error) if isinstance(error, BadStatusLine) else ""
        if line.startswith("\0\0") and line[3:4] == "\x04":  # a frame with SETTINGS
            return f"; it speaks HTTP/2, as the port for xDS does: {_RIGHT}"
        if self.ca is None and isinstance(error, BadStatusLine | ConnectionResetError | BrokenPipeError):
            return "; perhaps it speaks TLS: give --admin-ca"
        return ""

    def _token_fault(self) -> str:
        if self.token_file is None:
            return "needs a token: give --admin-token-file"
        return f"does not accept the token in {self.token_file}: it is not in the server's --admin-token-file"


def admin_options(default: str | None, text: str) -> Callable[[F], Callable[..., Any]]:
    """Add --admin, and what it takes to get in; the command gets an AdminClient as `admin`, or None."""

    def add(command: F) -> Callable[..., Any]:
        @wraps(command)
        def call(
            *args: Any,
            admin: str | None,
            admin_ca: str | None,
            admin_cert: str | None,
            admin_key: str | None,
            admin_token_file: str | None,
            **given: Any,
        ) -> Any:
            client = None
            if admin is not None:
                client = AdminClient(admin, admin_ca, admin_cert, admin_key, admin_token_file)
            return command(*args, admin=client, **given)

        made: Callable[..., Any] = call
        for decorate in (
            click.option(
                "--admin-token-file", metavar="FILE", help="Send the first token in this file to the admin port."
            ),
            click.option("--admin-key", metavar="FILE", help="The private key of --admin-cert (PEM)."),
            click.option(
                "--admin-cert", metavar="FILE", help="The certificate to show to an admin port that asks for one (PEM)."
            ),
            click.option(
                "--admin-ca",
                metavar=f"FILE|{SYSTEM}",
                help="Ask the admin port over TLS, and trust the authorities in this file (PEM), or of the system.",
            ),
            click.option("--admin", type=Address(), default=default, show_default=default is not None, help=text),
        ):
            made = decorate(made)
        return made

    return add


def admin_or_files(config: Sequence[str], admin: AdminClient | None) -> AdminClient | None:
    """Return the admin port to ask, or None if CONFIG is to be read. Raises UsageError unless there is one of the two.

    What is typed counts more than a variable for the other.
    """
    if not choose_typed("config", "admin")[1]:
        admin = None
    if bool(config) == (admin is not None):
        raise UsageError("give either CONFIG or --admin")
    return admin
