"""shardproof.check, observe and an attached run tell jobs as strangers write them from those with a
mistake on one rank."""

from told_jobs import JobsTest

STRANGERS = {
    "quantisation_aware sound": "sound; between.activation_post_process.max_val and 2 more"
    " (statistics of each rank's own batches, which differ)",
    "quantisation_aware bit": "layers.0.weight on rank 1: element 3 is 0x",
    "unfrozen_in_turn sound": "sound",
    "unfrozen_in_turn forgotten": "0.bias on rank 1: element 0 is 0x",
    "sparse_rows sound": "sound",
    "sparse_rows moment": "optimizer.bag.weight.exp_avg on rank 1: element 12 is 0x",
    "normalised sound": "sound; mean and 1 more (it differs, and each rank writes it itself, like"
    " running statistics)",
    "normalised bit": "layers.0.weight on rank 1: element 5 is 0x",
    "normalised nan": "var on rank 1: 1 NaN and 0 Inf, the first at element 2",
    "normalised_alone sound": "sound; mean and 1 more (it differs, and each rank writes it itself,"
    " like running statistics)",
    "normalised_alone bit": "layers.0.weight on rank 1: element 5 is 0x",
    "unplain sound": "sound; codes (torch.quint8 tensor); ragged (a nested tensor); rows"
    " (torch.sparse_csr tensor); sparse (torch.sparse_coo tensor); unused.bias and 1 more (a lazy"
    " tensor that has no shape yet)",
    "unplain bit": "layers.1.weight on rank 1: element 2 is 0x",
    "adversaries sound": "sound",
    "adversaries bit": "maker.1.weight on rank 1: element 4 is 0x",
    "climbing sound": "sound",
    "climbing not back": "0.weight on rank 1: element 0 is 0x",
    "scheduled_stages sound": "sound",
    "scheduled_stages bit": "layer3.weight on rank 3: element 1 is 0x",
    "experts_of_unlike_number sound": "sound",
    "experts_of_unlike_number router": "router.weight on rank 1: element 5 is 0x",
    "experts_of_unlike_number nan": "experts.1.weight on rank 1: 1 NaN and 0 Inf, the first at"
    " element 6",
    "taught sound": "sound",
    "taught bit": "teacher.0.weight on rank 3: element 1 is 0x",
    "taught nan": "student.0.weight on rank 1: 1 NaN and 0 Inf, the first at element 13",
    "averaged_apart sound": "sound",
    "averaged_apart nan": "average.0.weight on rank 1: 1 NaN and 0 Inf, the first at element 9",
    "resized sound": "sound",
    "resized bit": "1.weight on rank 1: element 2 is 0x",
    "placed sound": "sound",
    "placed bit": "0.weight on rank 3: element ",
}


class Strangers(JobsTest):
    script, says = "strangers_jobs.py", STRANGERS
    labels = "selftest multi-rank framework nightly"
    timeout_s = 1200
    seconds = 1000

    def test_strangers_checked(self):
        self.told_right()

    def test_strangers_observed(self):
        self.found_in_evidence()

    def test_strangers_attached(self):
        """Two models of an adversary's job are judged by themselves, under names of their own."""
        self.found_attached((
            "quantisation_aware", "climbing", "sparse_rows", "normalised", "placed", "resized",
        ))  # fmt: skip
