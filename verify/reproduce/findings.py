"""What a script needs of a finding: of the fields of its JSON form, never of its sentences."""


class NotShown(Exception):
    """Why no script shows a finding."""


CHECKPOINT = "checkpoint"
# What `against.what` says of a tensor whose right value the same job had at some moment.
_MOMENTS = ("plain", "initial", "earlier", "frozen", "model", "stage", "rank")


def against(finding):
    """What a value differs from: CHECKPOINT, or the (phase, stage) at which it was right.

    Raises NotShown.
    """
    what = finding.get("against", {}).get("what")
    if what == "checkpoint":
        return CHECKPOINT
    if what in _MOMENTS:
        return moment(finding)
    raise NotShown("what it was compared with cannot be had with torch alone")


def moment(finding):
    """The phase and stage that a finding's tensor is held against: its own where none is named."""
    said = finding.get("against", {})
    return said.get("phase", finding["phase"]), said.get("stage", finding["stage"])


def stage_before(finding):
    """The stage before the step that changed nothing. Raises NotShown."""
    if "against" not in finding:
        raise NotShown("the finding does not say since when nothing has changed")
    return moment(finding)[1]


def was_built_so(finding):
    """Whether a field was to be what it was at `built`."""
    return finding.get("against", {}).get("what") == "earlier"


def shares_with(finding):
    """The other tensor whose memory is shared or is not. Raises NotShown."""
    return _field(finding, "other", "with what it shares memory")


def key_report(finding):
    """Which report of keys is wrong: "missing" or "unexpected". Raises NotShown."""
    return _field(finding, "keys", "what was reported of the keys")


def limit_bytes(finding):
    return _field(finding, "limit_bytes", "how much is allowed")


def raised(finding):
    """The type of the exception that ended a rank, or ""."""
    return finding.get("raised", "")


def _field(finding, name, what):
    if name not in finding:
        raise NotShown(f"the finding does not say {what}")
    return finding[name]
