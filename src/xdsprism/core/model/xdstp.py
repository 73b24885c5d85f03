"""Names of the form `xdstp://[authority]/type/id?key=value#directives` (TP1), read and brought to one spelling.

A name is four things: an authority, a resource type, an id and context parameters; the URI is only how they are
written. Envoy writes `:` in an id as `%3A` and gRPC leaves it as it is, parameters come in any order, and directives
are for the client alone. So two names are one resource where the four things are equal (XTP-1), and `canonical` is
the spelling that goes on the wire and into a table: gRPC's, where it differs from Envoy's.

As in both of them, `%2F` in an id is the same as `/`: an id is one opaque string, not a list of steps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from ...errors import UsageError
from .events import WILDCARD
from .types import NO_PARAMS, Params, TypeUrl

SCHEME = "xdstp:"

# RFC 3986, 3.3: what may stand in a path as it is, beside letters, digits and `-._~`.
_IN_PATH = "/:@!$&'()*+,;="
_IN_TYPE = _IN_PATH.replace("/", "")
# RFC 3986, 3.4, without what separates parameters, and without what Go's net/url reads as a space or refuses.
_IN_QUERY = "/?:@!$'()*,"
_IN_AUTHORITY = ":@!$&'()*+,;=[]"

RESERVED = "xds."  # context parameters that begin so are for the client to make up (TP1, Context parameters)

# What stands in a query as it is, and decodes to itself.
_PLAIN_QUERY = re.compile(r"[A-Za-z0-9_.~/?:@!$'()*,=&-]*").fullmatch

_BROKEN = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class XdsName:
    """What an xdstp name says, decoded. `str()` of it is the canonical spelling."""

    authority: str
    type: str
    id: str
    context: Params = NO_PARAMS

    @property
    def is_glob(self) -> bool:
        """TP1, Glob collections: the last step of the id is `*`."""
        return self.id == "*" or self.id.endswith("/*")

    def __str__(self) -> str:
        name = f"{SCHEME}//{quote_authority(self.authority)}/{quote(self.type, _IN_TYPE)}/{quote_path(self.id)}"
        if not self.context:
            return name
        pairs = sorted(self.context.items())
        plain = "&".join([f"{key}={value}" for key, value in pairs])
        if _PLAIN_QUERY(plain) and plain.count("&") == len(pairs) - 1 and plain.count("=") == len(pairs):
            return f"{name}?{plain}"
        return f"{name}?" + "&".join(f"{quote(key, _IN_QUERY)}={quote(value, _IN_QUERY)}" for key, value in pairs)


def parse(name: str) -> XdsName:
    """Read an xdstp name; UsageError says what is wrong with it. XTP-11: processing directives are left behind."""
    if not name.startswith(SCHEME + "//"):
        raise _bad(name, "it must start with xdstp://")
    located, _, query = name.partition("#")[0].removeprefix(SCHEME + "//").partition("?")
    authority, _, path = located.partition("/")
    kind, _, identity = path.partition("/")
    if not kind or not identity:
        raise _bad(name, f"it has no {'id' if kind else 'resource type'}; write xdstp://authority/type/id")
    return XdsName(_decode(name, authority), _decode(name, kind), _decode(name, identity), _context(name, query))


def canonical(name: str) -> str:
    """Give every spelling of an xdstp name the same one; any other name is opaque and comes back untouched. XTP-1."""
    return str(parse(name)) if is_xdstp(name) else name


def spelled(name: str) -> str:
    """The same, where a name that is no good is somebody else's to complain about: it comes back as it is."""
    try:
        return canonical(name)
    except UsageError:
        return name


def own_name(name: str, type_url: TypeUrl) -> str:
    """The name of a resource itself, in canonical spelling. UsageError: it is one to ask by, or of another type.

    TP1, URI-based xDS resource names: what names a resource has neither directives nor globs.
    """
    if not is_xdstp(name):
        return name
    parsed = parse(name)
    _check_type(name, parsed, type_url)
    reserved = next((key for key in parsed.context if key.startswith(RESERVED)), None)
    if "#" in name:
        raise _bad(name, "a resource's own name has no directives; leave out what follows the #")
    if parsed.is_glob:
        raise _bad(name, "it is a glob collection; give each of its members a name")
    if reserved is not None:  # XTP-10
        raise _bad(name, f"context parameters that begin with {RESERVED} are reserved, such as {reserved!r}")
    return str(parsed)


def complaint(name: str, type_url: TypeUrl, *, globs: bool) -> str | None:
    """XTP-9: why nothing can be called what a client asks for; None: something may be."""
    if not is_xdstp(name):
        return None
    try:
        parsed = parse(name)
        _check_type(name, parsed, type_url)
    except UsageError as error:
        return str(error)
    if parsed.is_glob and not globs:  # XTP-8
        return str(_bad(name, "a glob collection can only be asked for in delta (incremental) xDS"))
    return None


def collection_of(name: str) -> str | None:
    """The glob collection that a resource is in, by their canonical names; None: it is in none.

    XTP-3, XTP-4: one step up, with the same context. TP1 has `?` encoded in a path, so that the first one ends it.
    """
    if not is_xdstp(name):
        return None
    path, mark, context = name.partition("?")
    return f"{path.rpartition('/')[0]}/*{mark}{context}"


def is_wild(name: str) -> bool:
    """Whether a canonical name stands for others: for everything, or for a glob collection."""
    return name == WILDCARD or (name.startswith(SCHEME) and name == collection_of(name))


def wildcards(name: str) -> tuple[str, ...]:
    """All that stands for a name among others."""
    glob = collection_of(name)
    return (WILDCARD,) if glob is None else (WILDCARD, glob)


def authority_of(name: str) -> str | None:
    """Find whom to ask: the authority of an xdstp name, which may be empty; None for any other name."""
    return parse(name).authority if is_xdstp(name) else None


def is_glob(name: str) -> bool:
    return is_xdstp(name) and parse(name).is_glob


def is_xdstp(name: str) -> bool:
    """A47: whatever starts with `xdstp:` is meant as such a name; if the rest is wrong, that is an error."""
    return name.startswith(SCHEME)


def quote_path(text: str) -> str:
    """A47: what may stand in a path (RFC 3986, 3.3, and so `/`) stays, all else is percent-encoded."""
    return quote(text, _IN_PATH)


def quote_authority(text: str) -> str:
    return quote(text, _IN_AUTHORITY)


def _context(name: str, query: str) -> Params:
    context: dict[str, str] = {}
    if "%" not in query and query.count("=") == query.count("&") + 1:  # mostly; then each has at most one of these
        pairs = [pair.split("=") for pair in query.split("&")]
        if all(len(pair) == 2 and pair[0] for pair in pairs):
            return Params(map(tuple, pairs))  # type: ignore[arg-type] # of two
    for pair in filter(None, query.split("&")):
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise _bad(name, f"context parameters are written key=value, not {pair!r}")
        context[_decode(name, key)] = _decode(name, value)  # XTP-11: the last of several wins
    return Params(context)


def _decode(name: str, part: str) -> str:
    if "%" not in part:
        return part
    broken = _BROKEN.search(part)
    if broken is not None:
        raise _bad(name, f"{broken.group()!r} is no percent-encoding; write % itself as %25")
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise _bad(name, f"{part!r} does not decode to UTF-8") from None


def _check_type(name: str, parsed: XdsName, type_url: TypeUrl) -> None:
    wanted = type_url.rpartition("/")[2]
    if parsed.type != wanted:
        raise _bad(name, f"its type is {parsed.type}, but this is a {wanted}")


def _bad(name: str, why: str) -> UsageError:
    return UsageError(f"bad resource name {name!r}: {why}")
