"""What a finding was held against, and the other facts that a script needs of it. What is not a
plain field of a finding is read here and nowhere else.
"""

import re


class NotShown(Exception):
    """Why no script shows a finding."""


CHECKPOINT = "checkpoint"


def against(finding):
    """What a value differs from: CHECKPOINT, or the (phase, stage) at which it was right.

    Raises NotShown.
    """
    here, message = (finding["phase"], finding["stage"]), finding["message"]
    if named := re.search(r"differs from `([\w@.]+)` of phase (\w+)", message):
        return named.group(2), named.group(1)
    if named := re.search(r"differs from (?:the model|its value) at `([\w@.]+)`", message):
        return here[0], named.group(1)
    for words, found in (
        ("the checkpoint", CHECKPOINT),
        ("the plain path", ("plain", "ready")),
        ("rank 0 at `loaded`", (here[0], "loaded")),
        (r"its initial value|rank \d+", here),
    ):
        words = words if "|" in words else re.escape(words)
        if re.search(rf"differs from ({words})|(is .*, )({words}) has", message):
            return found
    raise NotShown("what it was compared with cannot be had with torch alone")


def stage_before(finding):
    """The stage before the step that changed nothing."""
    return re.search(r"than at `([\w@.]+)`", finding["message"]).group(1)


def was_built_so(finding):
    """Whether a field was to be what it was at `built`."""
    return "at `built`" in finding["message"]


def shares_with(finding):
    """The other tensor whose memory is shared or is not. Raises NotShown."""
    other = re.search(r"memory with ([^,;]+)", finding["message"])
    if not other:
        raise NotShown("the finding does not say with what it shares memory")
    return other.group(1)


def key_report(finding):
    """Which report of keys is wrong: "missing" or "unexpected"."""
    return "missing" if "are missing" in finding["message"] else "unexpected"


def limit_bytes(finding):
    return int(re.search(r"\d+", finding["expected"]).group())


def raised(finding):
    """The type of the exception that ended a rank, or ""."""
    found = re.search(r"subject: (\w+)", finding["seen"] or finding["message"])
    return found.group(1) if found else ""
