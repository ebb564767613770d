"""What an attached job was asked for. It travels to the processes that it starts in one variable of
the environment."""

import dataclasses
import json
import os

VARIABLE = "SHARDPROOF_ATTACH"
STAGES = ("ready", "saved", "restored")
FOLDER = "shardproof-evidence"


@dataclasses.dataclass(frozen=True)
class Options:
    """stages: those of STAGES to observe at. every: also every so many steps, 0 for the first and
    the last alone. folder: where evidence goes, absolute. launch: what tells this start of a job
    from others. strict: whether findings, and failures of ours, make the job fail. who: whether it
    is told who allocates and holds the largest of its memory."""

    stages: tuple[str, ...] = STAGES
    every: int = 0
    folder: str = FOLDER
    launch: str = ""
    strict: bool = False
    who: bool = False

    def to_environment(self):
        os.environ[VARIABLE] = json.dumps(dataclasses.asdict(self))


def from_environment() -> Options | None:
    """None if the job is not attached. \\raises ValueError for what to_environment never wrote."""
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    try:
        fields = json.loads(text)
        return Options(**{**fields, "stages": tuple(fields.get("stages", STAGES))})
    except (TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{VARIABLE}: expected what shardproof.run puts there: {error}") from error


def parse_at(text: str) -> tuple[tuple[str, ...], int]:
    """text: "ready,saved,restored,every=50". \\returns stages, and every how many steps.

    \\raises ValueError naming the word that is none of these.
    """
    stages, every = [], 0
    for word in filter(None, (each.strip() for each in text.split(","))):
        if word in STAGES:
            stages.append(word)
        elif word.startswith("every=") and word[6:].isdigit() and int(word[6:]) > 0:
            every = int(word[6:])
        else:
            raise ValueError(
                f"--at {text}: expected {', '.join(STAGES)} or every=STEPS, found {word!r}"
            )
    return tuple(stages), every
