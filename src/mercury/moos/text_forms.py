"""The text forms of what MOOS communities say (pMediator §3, §4 and §9, and pNodeReporter).

    NODE_MESSAGE[_LOCAL]      src_node=abe,dest_node=ben,var_name=RETURN,string_val=true
    MEDIATED_MESSAGE[_LOCAL]  ack_id=abe_1,ack=true,src_node=abe,dest_node=ben,var_name=...
    ACK_MESSAGE[_LOCAL]       id=abe_1, src=ben, dest=abe
    NODE_REPORT[_LOCAL]       NAME=abe,X=10,Y=-20,SPD=1.5,HDG=90,LAT=43.8253,LON=-70.3304,...

How such a text is read: fields stand between commas that are neither in double quotes nor in
braces; a field is a name, in any case, and what follows the first equals sign, without white space
around either; the last of several fields of a name counts; unknown names are passed over.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from mercury.model.errors import MoosError

ALL = "all"

# Names and notes are shown to people: no control characters, and nothing that is no text.
_NAME = re.compile(r'[^\s,:="{}\x00-\x1f\x7f-\x9f\ud800-\udfff]+')
_NOTE = re.compile(r'[^,"{}\x00-\x1f\x7f-\x9f\ud800-\udfff]*')
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_TEXTS = ("dest_group", "src_app", "src_bhv", "color", "ack_id")  # fields that may be left out
# A value in quotes, and the flag behind it that says that they are not part of it. Two patterns
# rather than one: what comes from the network must not make a search take long.
_QUOTED_BEGIN = re.compile(r'(?:\A|,)\s*string_val\s*=\s*"', re.IGNORECASE)
_QUOTED_END = re.compile(r'"\s*,\s*string_val_quoted\s*=\s*true\s*(?=,|\Z)', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NodeMessage:
    """A variable and its value from one node to others; mediated once it has an `ack_id`.

    Has a `double_val` or a `string_val`, never both. A string may be any text.
    """

    src_node: str
    dest_nodes: tuple[str, ...]  # `all` stands for every other node
    var_name: str
    string_val: str | None = None
    double_val: float | None = None
    dest_group: str = ""
    src_app: str = ""
    src_bhv: str = ""  # behaviour of the helm that said it
    color: str = ""
    ack_id: str = ""
    ack: bool = False  # whether an acknowledgement is asked for

    def __post_init__(self) -> None:
        if not self.dest_nodes and not self.dest_group:
            raise MoosError("no-destination", "a node message needs dest_node or dest_group")
        for field, name in self._names():
            if not _NAME.fullmatch(name):
                raise MoosError(f"bad-{field}", f"{field} {name!r} is no name")
        for field in ("src_app", "src_bhv", "color"):
            note = getattr(self, field)
            if not _NOTE.fullmatch(note) or note != note.strip():
                raise MoosError(f"bad-{field}", f"{field} {note!r} cannot stand in a node message")
        if self.string_val is not None and self.double_val is not None:
            raise MoosError("both-values", "a node message has string_val or double_val, not both")
        if self.string_val is None and self.double_val is None:
            raise MoosError("no-value", "a node message needs string_val or double_val")
        if self.double_val is not None and not math.isfinite(self.double_val):
            raise MoosError("bad-double_val", f"double_val {self.double_val} is not finite")

    @property
    def plain(self) -> NodeMessage:
        """The same without what mediation added."""
        return replace(self, ack_id="", ack=False)

    def _names(self) -> Iterator[tuple[str, str]]:
        yield "src_node", self.src_node
        yield from (("dest_node", name) for name in self.dest_nodes)
        yield "var_name", self.var_name
        if self.dest_group:
            yield "dest_group", self.dest_group
        if self.ack_id:
            yield "ack_id", self.ack_id


@dataclass(frozen=True, slots=True)
class AckMessage:
    """`src` has the message `id` that `dest` sent."""

    id: str
    src: str
    dest: str

    def __post_init__(self) -> None:
        for field in ("id", "src", "dest"):
            name = getattr(self, field)
            if not _NAME.fullmatch(name):
                raise MoosError(f"bad-{field}", f"{field} {name!r} of an acknowledgement")
        if self.src.lower() == self.dest.lower():
            raise MoosError("ack-to-self", f"{self.src} acknowledges to itself")


@dataclass(frozen=True, slots=True)
class NodeReport:
    """Position and motion of a vehicle, as it reports them."""

    name: str
    lat: float
    lon: float
    speed_mps: float | None = None
    heading_deg: float | None = None


def read_node_message(text: str) -> NodeMessage:
    """Read a NODE_MESSAGE or MEDIATED_MESSAGE; raises MoosError with the reason."""
    text, string_val = _take_quoted_value(text)
    fields = read_fields(text)
    if string_val is None:
        string_val = fields.get("string_val", "")
        # Without the flag quotes belong to the value, as MOOS has it.
        if fields.get("string_val_quoted", "").lower() == "true" and _is_quoted(string_val):
            string_val = string_val[1:-1]
    double_val = _number(fields, "double_val")
    # MOOS takes an empty string for none.
    return NodeMessage(
        src_node=_needed(fields, "src_node"),
        dest_nodes=tuple(
            name for part in fields.get("dest_node", "").split(":") if (name := part.strip())
        ),
        var_name=_needed(fields, "var_name"),
        string_val=string_val if string_val or double_val is None else None,
        double_val=double_val,
        ack=fields.get("ack", "").lower() == "true",
        **{name: fields.get(name, "") for name in _TEXTS},
    )


def read_mediated_message(text: str) -> NodeMessage:
    """Read a MEDIATED_MESSAGE: a node message with an id, which distinguishes repetitions."""
    message = read_node_message(text)
    if not message.ack_id:
        raise MoosError("no-ack_id", "a mediated message needs ack_id")
    return message


def write_node_message(message: NodeMessage) -> str:
    """Write a message, mediated if it has an `ack_id`, in the order of fields that MOOS uses."""
    value = (
        _string_field(message.string_val)
        if message.double_val is None
        else f"double_val={_number_text(message.double_val)}"
    )
    fields = [
        ("ack_id", message.ack_id),
        ("ack", "true" if message.ack else ""),
        ("src_node", message.src_node),
        ("dest_node", ":".join(message.dest_nodes)),
        ("dest_group", message.dest_group),
        ("src_app", message.src_app),
        ("src_bhv", message.src_bhv),
        ("var_name", message.var_name),
        ("color", message.color),
    ]
    return ",".join([*(f"{name}={content}" for name, content in fields if content), value])


def read_ack_message(text: str) -> AckMessage:
    fields = read_fields(text)
    return AckMessage(_needed(fields, "id"), _needed(fields, "src"), _needed(fields, "dest"))


def write_ack_message(message: AckMessage) -> str:
    """Write an acknowledgement as pMediator does."""
    return f"id={message.id}, src={message.src}, dest={message.dest}"


def read_node_report(text: str) -> NodeReport:
    """Read what Mercury needs; raises MoosError with the reason."""
    fields = read_fields(text)
    name = _needed(fields, "name")
    lat, lon = _number(fields, "lat"), _number(fields, "lon")
    if lat is None or lon is None:
        raise MoosError("no-position", f"the report of {name} has no LAT and LON")
    if abs(lat) > 90 or abs(lon) > 180:
        raise MoosError("bad-position", f"{name} reports itself at {lat}, {lon}")
    speed_mps, heading_deg = _number(fields, "spd"), _number(fields, "hdg")
    return NodeReport(
        name,
        lat,
        lon,
        None if speed_mps is None else abs(speed_mps),
        None if heading_deg is None else heading_deg % 360.0,
    )


def read_fields(text: str) -> dict[str, str]:
    """Fields by name in small letters; the last one of a name counts."""
    fields = {}
    for part in _split(text):
        name, equals, value = part.partition("=")
        if equals:
            fields[name.strip().lower()] = value.strip()
    return fields


def _split(text: str) -> Iterator[str]:
    """Parts between commas that stand neither in quotes nor in braces."""
    begin = depth = 0
    in_quotes = False
    for mark in re.finditer(r'[,"{}]', text):
        match mark.group():
            case '"':
                in_quotes = not in_quotes
            case "{":
                depth += 1
            case "}":
                depth = max(0, depth - 1)
            case _ if not in_quotes and not depth:
                yield text[begin : mark.start()]
                begin = mark.end()
    yield text[begin:]


def _take_quoted_value(text: str) -> tuple[str, str | None]:
    """Cut out a value that was quoted to hide its commas: the rest, and the value.

    MOOS counts quotes here, so that a value with a quote and a comma falls apart. Names hold no
    quotes, hence the first that stands there opens the value, and the value goes on to the last
    flag: MOOS and we write it at the end.
    """
    begin = _QUOTED_BEGIN.search(text)
    if begin is None or '"' in text[: begin.start()]:
        return text, None
    ends = list(_QUOTED_END.finditer(text, begin.end()))
    if not ends:
        return text, None
    return text[: begin.start()] + text[ends[-1].end() :], text[begin.end() : ends[-1].start()]


def _string_field(value: str | None) -> str:
    value = value or ""
    if "," not in value or _is_quoted(value):
        bare = f"string_val={value}"
        if _take_quoted_value(bare)[1] is None and read_fields(bare) == {"string_val": value}:
            return bare
    return f'string_val="{value}",string_val_quoted=true'


def _is_quoted(value: str) -> bool:
    return len(value) > 1 and value.startswith('"') and value.endswith('"')


def _needed(fields: dict[str, str], name: str) -> str:
    if not fields.get(name):
        raise MoosError(f"no-{name}", f"{name} is missing")
    return fields[name]


def _number_text(value: float) -> str:
    # 1984 rather than 1984.0, as MOOS writes it; every digit is kept, where MOOS keeps six.
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value)) if value or math.copysign(1, value) > 0 else "-0"
    return repr(value)


def _number(fields: dict[str, str], name: str) -> float | None:
    text = fields.get(name)
    if not text:
        return None
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(value):
        raise MoosError(f"bad-{name}", f"{name} {text!r} is no number")
    return value
