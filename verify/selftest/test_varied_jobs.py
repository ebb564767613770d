"""shardproof.check, observe and an attached run tell jobs of several models, roles and groups from
those with a mistake on one rank."""

from told_jobs import JobsTest

SEVERAL = (
    "several groups of ranks have a copy of their own, and nothing says whether the "
    "copies must be equal: mesh= with all axes of the job compares them"
)

VARIED = {
    "local_sgd sound": f"sound; 0.bias and 7 more ({SEVERAL})",
    "local_sgd nan": "0.weight on rank 3: element 9 is 0x7fc00000, on rank 2 0x",
    "local_sgd bit": "0.weight on rank 3: element 9 is 0x",
    "outer_steps sound": f"sound; 0.bias and 15 more ({SEVERAL})",
    "outer_steps bit": "1.weight on rank 1: element 4 is 0x",
    "two_towers sound": "sound",
    "two_towers bit": "1.0.weight on rank 1: element 5 is 0x",
    "roles sound": f"sound; 0.bias and 15 more ({SEVERAL})",
    "roles nan": "1.weight on rank 3: 1 NaN and 0 Inf, the first at element 13",
    "roles bit": "scale on rank 3: element 1 is 0x40000001, on rank 2 0x40000000",
    "resumed_elsewhere sound": "sound",
    "resumed_elsewhere stale": "0.bias on rank 3: element 3 is 0x",
    "replicated sound": "sound",
    "replicated bit": "0.weight on rank 1: element 5 is 0x",
    "quantised_base sound": "sound",
    "quantised_base code": "0.codes on rank 1: element 7 is 0x7e, on rank 0 0x7f",
}


class Varied(JobsTest):
    script, says = "varied_jobs.py", VARIED
    labels = "selftest multi-rank framework nightly"
    timeout_s = 1200
    seconds = 1000

    def test_varied_checked(self):
        self.told_right()

    def test_varied_observed(self):
        self.found_in_evidence()

    def test_varied_attached(self):
        """Of roles, nobody says who has the buffer."""
        self.found_attached((
            "local_sgd", "outer_steps", "two_towers", "resumed_elsewhere", "replicated",
            "quantised_base",
        ))  # fmt: skip
