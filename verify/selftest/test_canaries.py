"""Canaries: a fault in a real checkpoint's run must be found, and named exactly."""

from command import CommandTest, checkpoint

NORM = "model.norm.weight"
EMBED = "model.embed_tokens.weight"
ROPE = "model.rotary_emb.inv_freq"
VOCAB, HIDDEN = 211, 72


def owner_of_row(row, rows, world):
    """The rank that holds this row, by the chunk rule."""
    return row // -(-rows // world)


class Canary(CommandTest):
    labels = "selftest multi-rank"
    fixtures = "checkpoints"

    def findings(self, world, fault, model="qwen3-small"):
        """The findings of a run with this fault, by property, those of phase values first."""
        document = self.judged("verify", "--checkpoint", checkpoint(model), "--world", world,
                               "--inject", fault, code=1)  # fmt: skip
        fired = [one for one in document["properties"] if one["id"] == "fault.every_fault_fires"]
        self.assertEqual(fired[0]["verdict"], "pass")
        by_property = {}
        for finding in document["findings"]:
            by_property.setdefault(finding["property"], []).append(finding)
        return by_property

    def places(self, findings):
        """(stage, ranks) of those of the phase that has the fault's own world."""
        return [(one["stage"], one["ranks"]) for one in findings if one["phase"] == "values"]

    def flipped(self, world):
        """One bit of one element of the norm, whose rows are shared out like all others."""
        index = 55
        found = self.findings(world, f"file/flip@{NORM}:{index}")
        self.assertIn("loading.equals_source", found)
        rank = owner_of_row(index, HIDDEN, world)
        for finding in found["loading.equals_source"]:
            self.assertEqual((finding["tensor"], finding["index"]), (NORM, index))
            self.assertEqual(finding["differing"], 1)
            self.assertNotEqual(finding["expected"], finding["seen"])
        self.assertEqual(self.places(found["loading.equals_source"]), [("loaded", [0])])
        self.assertEqual(self.places(found["loading.efficient_equals_plain"]), [("ready", [rank])])

    def swapped(self, world):
        """Two rows of the embedding change places on the way to the last rank that owns any."""
        found = self.findings(world, f"comm/swap-rows@{EMBED}")
        self.assertIn("loading.equals_source", found)
        rank = owner_of_row(VOCAB - 1, VOCAB, world)
        for name in ("loading.equals_source", "sharding.ranks_match_rank0"):
            if world > 1 or name in found:  # one rank has no other to match
                self.assertEqual(self.places(found[name]), [("ready", [rank])])
        for finding in found["loading.equals_source"]:
            self.assertEqual(finding["tensor"], EMBED)
            self.assertEqual(finding["coordinates"], list(divmod(finding["index"], HIDDEN)))
            self.assertEqual(owner_of_row(finding["coordinates"][0], VOCAB, finding["world_size"]),
                             finding["ranks"][0])  # fmt: skip

    def not_a_number(self, world):
        found = self.findings(world, f"buffer/nan@{ROPE}", model="llama-tied-small")
        for name in ("loading.derived_buffers", "loading.no_new_nan"):
            at_ready = [finding for finding in found[name]
                        if finding["stage"] == "ready"
                        and finding["phase"] == "values"]  # fmt: skip
            self.assertEqual([(one["tensor"], one["ranks"]) for one in at_ready],
                             [(ROPE, [world - 1])])  # fmt: skip
            self.assertEqual(at_ready[0]["index"], 0)

    def test_file_flip_on_1_rank(self):
        self.flipped(1)

    def test_file_flip_on_2_ranks(self):
        self.flipped(2)

    def test_file_flip_on_3_ranks(self):
        self.flipped(3)

    def test_file_flip_on_4_ranks(self):
        self.flipped(4)

    def test_swap_rows_on_1_rank(self):
        self.swapped(1)

    def test_swap_rows_on_2_ranks(self):
        self.swapped(2)

    def test_swap_rows_on_3_ranks(self):
        self.swapped(3)

    def test_swap_rows_on_4_ranks(self):
        self.swapped(4)

    def test_buffer_nan_on_1_rank(self):
        self.not_a_number(1)

    def test_buffer_nan_on_2_ranks(self):
        self.not_a_number(2)

    def test_buffer_nan_on_3_ranks(self):
        self.not_a_number(3)

    def test_buffer_nan_on_4_ranks(self):
        self.not_a_number(4)

    def test_flip_at_coordinates_is_the_same_element(self):
        found = self.findings(3, f"file/flip@{EMBED}:100,7")
        finding = found["loading.equals_source"][0]
        self.assertEqual((finding["index"], finding["coordinates"]), (100 * HIDDEN + 7, [100, 7]))

    def test_a_fault_that_never_fires_is_inconclusive(self):
        document = self.judged("verify", "--checkpoint", checkpoint("qwen3-small"), "--world", 2,
                               "--inject", "file/enospc@1000000", code=3)  # fmt: skip
        self.assertEqual(document["verdict"], "inconclusive")
        unfired = [one for one in document["properties"] if one["id"] == "fault.every_fault_fires"]
        self.assertEqual(unfired[0]["verdict"], "inconclusive")
        self.assertIn("file/enospc", unfired[0]["reason"])
