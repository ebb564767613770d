"""shardproof.check and observe tell jobs whose users write their own parallelism from those with a
mistake."""

from told_jobs import JobsTest

OWNED = "only some ranks have it, since the optimizer divides the parameters"

SAYS = {
    "divided sound": f"sound; optimizer.0.bias.momentum and 3 more ({OWNED})",
    "divided stale": "1.bias on rank 2: element 1 is 0x",
    "divided nan": "optimizer.1.weight.momentum on rank 2: 1 NaN and 0 Inf, the first at element 1",
    "coded sound": "sound",
    "coded counter": "optimizer.0.bias.step on rank 1: element 0 is 0x",
    "coded code": "optimizer.0.bias.moment[codes] on rank 1: element 3 is 0x",
    "coded old": "optimizer.0.bias.old[0] on rank 1: element 2 is 0x",
    "copies sound": "sound",
    "copies copy": "optimizer.0.bias.main_param on rank 2: element 4 is 0x",
    "statistics sound": "sound; mean (it differs, and each rank writes it itself, like running "
    "statistics); norm.running_mean and 1 more (statistics of each rank's own batches, "
    "which differ)",
    "statistics one": "mean on rank 3: element 2 is 0x",
    "statistics inf": "scale on rank 0: 0 NaN and 1 Inf, the first at element 1",
    "resharded sound": "sound",
    "resharded nan": "0.weight on rank 1: 1 NaN and 0 Inf, the first at element 11",
    "summoned sound": "sound",
    "summoned nan": "1.bias on rank 3: 1 NaN and 0 Inf, the first at element 1",
    "uneven_parts sound": "sound; w (its parts differ in size: each was compared only with the same"
    " part on other replicas)",
    "uneven_parts drift": "w on rank 3: element 13 is 0x",
    "uneven_parts cut": "w on rank 3: this part differs from that of ranks which have the same",
}


FINDS = {
    "coded counter": ("0.bias", [1]),  # a number of Python's goes by its parameter
    "statistics inf": ("scale", [0, 1, 2, 3]),
}


class Users(JobsTest):
    script, says, finds = "users_jobs.py", SAYS, FINDS
    labels = "selftest multi-rank framework"
    timeout_s = 300

    def test_checked(self):
        self.told_right()

    def test_observed(self):
        self.found_in_evidence()
