"""A Case that cannot be run: exit code 2, the field named by its JSON pointer."""

from command import CommandTest

GOOD = {
    "schema": 1, "seed": 7, "mesh": [{"name": "dp_shard", "size": 2}],
    "model": {"tensors": [{"name": "a.weight", "dtype": "F32", "shape": [5, 3]},
                          {"name": "b.weight", "dtype": "F32", "shape": [4]}]},
}  # fmt: skip


def axis(size, name="dp_shard"):
    return {"name": name, "size": size}


class BadCase(CommandTest):
    def refused_case(self, *names, **changes):
        case = {k: v for k, v in {**GOOD, **changes}.items() if v is not None}
        path = self.write("case.json", case)
        self.refused("verify", "--case", path, names=names)
        self.refused("replay", path, names=names)

    def refused_tensor(self, *names, **changes):
        tensor = {"name": "a.weight", "dtype": "F32", "shape": [5, 3], **changes}
        self.refused_case(*names, model={"tensors": [tensor]})

    def test_good_case_passes(self):
        self.assert_exit(self.shardproof("verify", "--case", self.write("case.json", GOOD)), 0)

    def test_mesh_of_zero_ranks(self):
        self.refused_case("/mesh/0/size", "0", mesh=[axis(0)])

    def test_mesh_of_negative_ranks(self):
        self.refused_case("/mesh/0/size", "-2", mesh=[axis(-2)])

    def test_mesh_of_2000_ranks(self):
        self.refused_case("/mesh/0/size", "2000", mesh=[axis(2000)])

    def test_mesh_whose_product_is_beyond_1024(self):
        self.refused_case("/mesh", "1024", mesh=[axis(64), axis(64, "tp")])

    def test_mesh_with_an_unknown_axis(self):
        self.refused_case("/mesh/0/name", "sideways", "dp_shard", mesh=[axis(2, "sideways")])

    def test_mesh_with_one_axis_twice(self):
        self.refused_case("dp_shard", mesh=[axis(2), axis(2)])

    def test_mesh_of_pipeline_stages(self):
        self.refused_case("mesh", "pp", mesh=[axis(2), axis(2, "pp")])

    def test_mesh_without_an_axis(self):
        self.refused_case("/mesh", mesh=[])

    def test_mesh_that_is_a_number(self):
        self.refused_case("/mesh", mesh=2)

    def test_no_mesh(self):
        self.refused_case("mesh", mesh=None)

    def test_resume_mesh_of_zero_ranks(self):
        self.refused_case("/resume_mesh/0/size", resume_mesh=[axis(0)])

    def test_unknown_field(self):
        self.refused_case("strategi", strategi="plain")

    def test_unknown_field_of_a_tensor(self):
        self.refused_tensor("dtyp", dtyp="F32")

    def test_unknown_strategy(self):
        self.refused_case("/strategy", "magic", "rank0-broadcast", strategy="magic")

    def test_unknown_bug(self):
        self.refused_case("no.such", bug="no.such")

    def test_unknown_fault(self):
        self.refused_case("no/such", faults=[{"id": "no/such", "where": "1"}])

    def test_unknown_subject(self):
        self.refused_case("subject", "magic", subject="magic")

    def test_another_schema(self):
        self.refused_case("schema", "2", schema=2)

    def test_negative_seed(self):
        self.refused_case("/seed", seed=-1)

    def test_bucket_of_no_bytes(self):
        self.refused_case("/bucket_bytes", bucket_bytes=0)

    def test_no_model(self):
        self.refused_case("model", model=None)

    def test_both_kinds_of_model(self):
        self.refused_case("/model", model={**GOOD["model"], "checkpoint": "d"})

    def test_no_tensors(self):
        self.refused_case("tensors", model={"tensors": []})

    def test_unknown_dtype(self):
        self.refused_tensor("/model/tensors/0/dtype", "F31", dtype="F31")

    def test_negative_size(self):
        self.refused_tensor("/model/tensors/0/shape", shape=[5, -3])

    def test_shape_whose_product_overflows(self):
        self.refused_tensor("/model/tensors/0/shape", shape=[1 << 40, 1 << 40])

    def test_more_bytes_than_there_is_room_for(self):
        self.refused_tensor("case: its checkpoint has 524288 MiB", "has room for", shape=[1 << 37])

    def test_more_bytes_than_a_case_may_have(self):
        self.refused_tensor("/model/tensors/0/shape", shape=[1 << 39])

    def test_name_of_no_tensor_in_missing(self):
        self.refused_case("nobody", model={**GOOD["model"], "missing": ["nobody"]})

    def test_tie_of_different_shapes(self):
        self.refused_case("/model/ties/0", model={**GOOD["model"],
                                                  "ties": [["a.weight", "b.weight"]]})  # fmt: skip

    def test_rope_on_a_parameter(self):
        self.refused_tensor("rope", rope={"rope_type": "default"}, shape=[4])

    def test_one_name_twice(self):
        self.refused_case("a.weight", model={"tensors": [GOOD["model"]["tensors"][0]] * 2})

    def test_not_json(self):
        self.refused("verify", "--case", self.write("case.json", "{"), names=["case.json"])

    def test_not_there(self):
        self.refused("verify", "--case", "case.json", names=["case.json"])

    def test_a_directory(self):
        (self.dir / "case.json").mkdir()
        self.refused("verify", "--case", "case.json", names=["case.json"])

    def test_deeply_nested(self):
        path = self.write("case.json", '{"model":' * 100000)
        self.refused("verify", "--case", path, names=["case.json"])

    def test_checkpoint_that_is_not_there(self):
        self.refused_case("not-there", model={"checkpoint": "not-there"})
