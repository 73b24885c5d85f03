"""Read names of the form `xdstp://[authority]/type/id?key=value` and bring them to one spelling (TP1).

An xdstp name is four things: an authority, a resource type, an id and context parameters. The URI is only one way to
write them, and peers write it differently: Envoy writes `:` in an id as `%3A`, gRPC leaves it; context parameters come
in any order; directives after the `#` are for the client alone. Two names are one resource if the four things are equal
(XTP-1). `canonical` is the spelling on the wire and in tables: gRPC's, where it differs from Envoy's.

An id is one opaque string and not a list of steps: `%2F` in an id is the same as `/`, as in Envoy and gRPC.

A glob collection is a name whose id ends in `/*`. A subscription to it stands for all names one step below its path
with the same context: `xdstp://a/T/x/*` has the member `xdstp://a/T/x/y`, and not `xdstp://a/T/x/y/z`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from ...errors import UsageError
from .events import WILDCARD
from .types import NO_PARAMS, Params, TypeUrl

SCHEME = "xdstp:"

# RFC 3986, 3.3: characters that need no encoding in a path, apart from letters, digits and `-._~`.
_IN_PATH = "/:@!$&'()*+,;="
_IN_TYPE = _IN_PATH.replace("/", "")
# RFC 3986, 3.4: the same for a query, without the separators of parameters, and without characters that Go's net/url
# reads as a space or refuses.
_IN_QUERY = "/?:@!$'()*,"
_IN_AUTHORITY = ":@!$&'()*+,;=[]"

RESERVED = "xds."  # only clients may add context parameters with this prefix (TP1, Context parameters)

# A query that needs neither encoding nor decoding.
_PLAIN_QUERY = re.compile(r"[A-Za-z0-9_.~/?:@!$'()*,=&-]*").fullmatch

# A percent sign that does not begin a valid encoding.
_BROKEN = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class XdsName:
    """The parts of an xdstp name, decoded. `str()` returns the canonical spelling."""

    authority: str
    type: str
    id: str
    context: Params = NO_PARAMS

    @property
    def is_glob(self) -> bool:
        """Whether it names a glob collection: the last step of the id is `*` (TP1, Glob collections)."""
        return self.id == "*" or self.id.endswith("/*")

    def __str__(self) -> str:
        """Write the canonical spelling: parameters sorted, everything encoded as gRPC encodes it."""
        name = f"{SCHEME}//{quote_authority(self.authority)}/{quote(self.type, _IN_TYPE)}/{quote_path(self.id)}"
        if not self.context:
            return name
        pairs = sorted(self.context.items())
        # Fast path: no key or value has a character to encode, nor one of the separators.
        plain = "&".join([f"{key}={value}" for key, value in pairs])
        if _PLAIN_QUERY(plain) and plain.count("&") == len(pairs) - 1 and plain.count("=") == len(pairs):
            return f"{name}?{plain}"
        return f"{name}?" + "&".join(f"{quote(key, _IN_QUERY)}={quote(value, _IN_QUERY)}" for key, value in pairs)


def parse(name: str) -> XdsName:
    """Read an xdstp name; raise UsageError that says what is wrong. XTP-11: processing directives are dropped."""
    if not name.startswith(SCHEME + "//"):
        raise _bad(name, "it must start with xdstp://")
    located, _, query = name.partition("#")[0].removeprefix(SCHEME + "//").partition("?")
    authority, _, path = located.partition("/")
    kind, _, identity = path.partition("/")
    if not kind or not identity:
        raise _bad(name, f"it has no {'id' if kind else 'resource type'}; write xdstp://authority/type/id")
    return XdsName(_decode(name, authority), _decode(name, kind), _decode(name, identity), _context(name, query))


def canonical(name: str) -> str:
    """Return the canonical spelling of an xdstp name; any other name is opaque and comes back unchanged. XTP-1.

    Raises UsageError for a malformed xdstp name.
    """
    return str(parse(name)) if is_xdstp(name) else name


def spelled(name: str) -> str:
    """Return the canonical spelling, or the name itself if it is malformed: the caller leaves that error to others."""
    try:
        return canonical(name)
    except UsageError:
        return name


def own_name(name: str, type_url: TypeUrl) -> str:
    """Return a resource's own name in canonical spelling; raise UsageError if a resource can't have this name.

    TP1, URI-based xDS resource names: the name of a resource has neither directives nor globs, which are for
    subscriptions, and it has the type of the resource.
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
    """XTP-9: return why no resource can have the name that a client subscribes to; None: one may."""
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
    """Return the glob collection that a canonical name belongs to; None for a name that is not xdstp.

    XTP-3, XTP-4: one step up, with the same context. TP1 requires `?` to be encoded in a path, so that the first one
    ends the path.
    """
    if not is_xdstp(name):
        return None
    path, mark, context = name.partition("?")
    return f"{path.rpartition('/')[0]}/*{mark}{context}"


def is_wild(name: str) -> bool:
    """Whether a canonical name is `*` or a glob collection, and so stands for other names."""
    return name == WILDCARD or (name.startswith(SCHEME) and name == collection_of(name))


def wildcards(name: str) -> tuple[str, ...]:
    """Return the wildcard and the glob collection, if there is one, that include this name."""
    glob = collection_of(name)
    return (WILDCARD,) if glob is None else (WILDCARD, glob)


def member_prefix(wild: str) -> str:
    """Return how the names of all members of a wildcard or glob collection begin."""
    return "" if wild == WILDCARD else wild.partition("?")[0].removesuffix("*")


def authority_of(name: str) -> str | None:
    """Return the authority of an xdstp name, which may be empty and says whom to ask; None for any other name."""
    return parse(name).authority if is_xdstp(name) else None


def is_glob(name: str) -> bool:
    """Whether the name is an xdstp glob collection."""
    return is_xdstp(name) and parse(name).is_glob


def is_xdstp(name: str) -> bool:
    """Whether the name is meant as an xdstp name. A47: anything that starts with `xdstp:` is, even if malformed."""
    return name.startswith(SCHEME)


def quote_path(text: str) -> str:
    """Percent-encode all but what a path may contain (A47; RFC 3986, 3.3), which includes `/`."""
    return quote(text, _IN_PATH)


def quote_authority(text: str) -> str:
    """Percent-encode all but what an authority may contain."""
    return quote(text, _IN_AUTHORITY)


def _context(name: str, query: str) -> Params:
    """Read the context parameters of a name."""
    context: dict[str, str] = {}
    # Fast path: nothing to decode, and one `=` in each pair.
    if "%" not in query and query.count("=") == query.count("&") + 1:
        pairs = [pair.split("=") for pair in query.split("&")]
        if all(len(pair) == 2 and pair[0] for pair in pairs):
            return Params(map(tuple, pairs))  # type: ignore[arg-type] # each has two items
    for pair in filter(None, query.split("&")):
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise _bad(name, f"context parameters are written key=value, not {pair!r}")
        context[_decode(name, key)] = _decode(name, value)  # XTP-11: the last of several wins
    return Params(context)


def _decode(name: str, part: str) -> str:
    """Decode the percent-encoding of one part of the name."""
    if "%" not in part:
        return part
    broken = _BROKEN.search(part)
    if broken is not None:
        raise _bad(name, f"{broken.group()!r} is not valid percent-encoding; write % itself as %25")
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise _bad(name, f"{part!r} does not decode to UTF-8") from None


def _check_type(name: str, parsed: XdsName, type_url: TypeUrl) -> None:
    """Raise UsageError if the name says another resource type than the one in the request or the resource."""
    wanted = type_url.rpartition("/")[2]
    if parsed.type != wanted:
        raise _bad(name, f"its type is {parsed.type}, but this is a {wanted}")


def _bad(name: str, why: str) -> UsageError:
    """Make the error for a name that can't be used."""
    return UsageError(f"bad resource name {name!r}: {why}")
