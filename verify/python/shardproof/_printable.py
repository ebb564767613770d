"""Text that others chose, such as tensors' names, made safe for a line of a terminal or a log."""

import re

# Controls, and what turns the direction of a line: as Printable in src/text/printable.cc.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def printable(text: str) -> str:
    """In one line: a line break as \\n, what is not printable as the bytes \\xNN of its UTF-8."""
    return _UNPRINTABLE.sub(_escaped, text)


def _escaped(match) -> str:
    if match[0] == "\n":
        return "\\n"
    return "".join(f"\\x{byte:02x}" for byte in match[0].encode("utf-8", "surrogatepass"))
