"""What a check is: it looks at what a rank observes, and judges how the rank ended."""

import dataclasses


@dataclasses.dataclass
class Check:
    """One thing that must hold.

    tensors: the names that it is about; of a check of the whole model, none
    reference: (phase, stage) at which it remembers what it compares with, or None
    """

    tensors: list = dataclasses.field(default_factory=list)
    reference: tuple | None = None

    at_the_end = False  # whether it is asked when run() is over, and not at a stage

    def prepare(self):
        """Called once, before any rank is started."""

    def begin(self, rank):
        """Called on every rank before run()."""

    def remember(self, rank, model):
        """Keeps what `look` compares with."""

    def look(self, rank, model):
        """Calls rank.fail(tensor, what) for whatever does not hold."""

    def judge(self, job, end):
        """What fails on one rank, as [(tensor, kind, what)], and what else went wrong, or ""."""
        trouble = end.what
        if not trouble and end.phase == job.at[0] and not end.checked:
            trouble = f"run() was over without `{job.at[1]}`: nothing was checked"
        return [(fail["tensor"], "", fail["fail"]) for fail in end.fails], trouble
