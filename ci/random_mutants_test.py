import random_mutants

SOURCE = """\
namespace shardproof {

Status Save(const Model& model, bool all) {
  // A comment with a < b.
  uint64_t begin = 0;
  if (begin < model.size() && all) return Ok();
  for (size_t i = 0; i < model.size(); ++i) {
    SP_TRY(Write(model, i));
  }
  static_assert(sizeof(int) == 4);
  std::map<std::string, int> names;
  Say("a < b");
  return all ? Ok() : Failed(
      "no");
}

}  // namespace shardproof
"""


def changes():
    return {(one.line, one.after.strip()) for one in random_mutants.mutants_of("src/a.cc", SOURCE)}


def test_each_kind_of_change():
    assert changes() == {
        (5, "uint64_t begin = 1;"),
        (6, "if (begin <= model.size() && all) return Ok();"),
        (6, "if (begin < model.size() || all) return Ok();"),
        (6, "if (!(begin < model.size() && all)) return Ok();"),
        (7, "for (size_t i = 0; i <= model.size(); ++i) {"),
        (7, "for (size_t i = 0; !(i < model.size()); ++i) {"),
        (8, ""),
        (12, ""),
    }


def test_planted_beside_the_original_under_a_number_and_in_its_line():
    drawn = random_mutants.draw({"a.cc": random_mutants.mutants_of("a.cc", SOURCE)}, 5, 1)
    assert [one.number for one in drawn] == [1, 2, 3, 4, 5]
    assert [one.line for one in drawn] == [5, 6, 7, 8, 12]  # one of each line
    text = random_mutants.with_mutants("a.cc", SOURCE, drawn).split("\n")
    assert text[1] == '#line 1 "a.cc"'
    assert text[2 + 4] == "  uint64_t begin = (ShardproofMutant(1) ? (1) : (0));"
    assert ") : bool(begin < model.size() && all))" in text[2 + 5]  # an optional, for instance
    assert text[2 + 7] == "    if (!ShardproofMutant(4)) SP_TRY(Write(model, i));"


def test_what_does_not_compile_is_taken_back(tmp_path):
    (tmp_path / "src" / "core").mkdir(parents=True)
    (tmp_path / "src" / "a.cc").write_text(SOURCE)
    document = tmp_path / "list.json"
    random_mutants.plant(tmp_path, 9, 1, document)
    log = tmp_path / "log"
    log.write_text("src/a.cc:8:5: error: no\n")
    assert random_mutants.drop(document, log) == 1
    text = (tmp_path / "src" / "a.cc").read_text()
    assert "\n    SP_TRY(Write(model, i));\n" in text
    assert "ShardproofMutant(1)" in text
    assert random_mutants.drop(document, log) == 0
