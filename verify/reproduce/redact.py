"""Bug reports without values, for `--redact`: where and what is wrong stays, and the report says
what was hidden."""

import re

HIDDEN = "(hidden)"
WHAT = (
    "expected and seen values, likely causes, the findings' own words, numbers in the reasons of "
    "what was not judged, and what the script printed"
)
NUMBER = re.compile(r"\b0x[0-9a-fA-F]+|-?\b\d+(\.\d+)?(e[-+]?\d+)?")


def redact(result):
    """Takes the values out of the document of a run, before anything is written from it."""
    for finding in result["findings"]:
        where = ", ".join(
            str(finding[key]) for key in ("phase", "stage", "tensor") if finding.get(key)
        )
        finding["message"] = f"{finding['kind']} ({where})" if where else finding["kind"]
        for field in ("expected", "seen", "explanation"):
            if finding.get(field):
                finding[field] = HIDDEN
    for one in [*result["properties"], *result["compared"]["skipped_phases"]]:
        one["reason"] = NUMBER.sub("#", one.get("reason") or "")
    result["redacted"] = WHAT
