// Every row with an option has one that `verify` takes, and that sets the field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "verify/case/fixture_fields.h"
#include "verify/cli/verify_arguments.h"

namespace shardproof {
namespace {

/// A file that is there, as the option needs it.
std::string ModelFile() {
  const std::string path = testing::TempDir() + "verify_options_test_model.py";
  std::ofstream(path) << "";
  return path;
}

/// A text that gives the field another value than its default.
std::string TextFor(const FieldOfCase& field) {
  static const std::map<std::string, std::string> by_hand = {
      {"subject", "job.py"},           {"model/checkpoint", "dir"},
      {"model/adapter", "adapter"},    {"model/factory", ModelFile() + ":make"},
      {"model/lora", "8:all-linear"},  {"mesh", "2x2"},
      {"resume_mesh", "tp=2"},         {"options", "name=value"},
      {"faults", "rank/kill@0@built"}, {"deadline_ms", "1.5"}};
  if (field.row->option.by_hand) return by_hand.at(field.path);
  if (field.row->names != nullptr) return std::string(field.row->names().back());
  return "3";
}

class VerifyOptions : public testing::Test {
 protected:
  VerifyOptions() { AddVerifyOptions(command_, arguments_); }

  /// What CLI11 says of the words, or nothing.
  std::string Parse(std::vector<std::string> words) {
    std::reverse(words.begin(), words.end());
    try {
      command_.parse(words);
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return "";
  }

  CLI::App command_;
  VerifyArguments arguments_;
};

TEST_F(VerifyOptions, SetTheFieldOfTheirRowAndNoOther) {
  Case plain;
  int options = 0;
  for (const FieldOfCase& field : FieldsOf(plain)) {
    const FieldOption& option = field.row->option;
    if (option.name == nullptr) continue;
    ++options;
    EXPECT_STRNE(option.help, "") << option.name;
    CLI::App command;
    VerifyArguments arguments;
    AddVerifyOptions(command, arguments);
    std::vector<std::string> words = {option.name};
    if (!std::holds_alternative<bool*>(field.value)) {
      words.insert(words.begin(), TextFor(field));
    }
    ASSERT_NO_THROW(command.parse(words)) << option.name;
    Case given;
    const Status set = SetGivenFields(arguments, given);
    ASSERT_TRUE(set.ok()) << option.name << ": " << set.error().message;
    const std::string parent = field.path.substr(0, field.path.find('/'));
    for (const FieldOfCase& other : FieldsOf(given)) {
      // --checkpoint says also what the case is for.
      if (other.path == "why" || (other.path == parent && other.path != field.path)) continue;
      EXPECT_EQ(!IsUsual(other), other.path == field.path) << option.name << ", " << other.path;
    }
  }
  EXPECT_GT(options, 20);
}

TEST_F(VerifyOptions, AreRefusedWithWhatWasExpectedAndFound) {
  EXPECT_THAT(Parse({"--strategy", "magic"}),
              testing::HasSubstr("--strategy: expected one of rank0-broadcast, rank0-scatter, "
                                 "each-reads-own or plain, found magic"));
  EXPECT_THAT(Parse({"--bucket-bytes", "0"}),
              testing::HasSubstr("--bucket-bytes: expected an integer from 1 to "));
  EXPECT_THAT(Parse({"--steps", "two"}), testing::HasSubstr("from 0 to 10000, found two"));
  EXPECT_EQ(Parse({"--device", "apart"}), "");
}

TEST_F(VerifyOptions, OfOneCaseHaveNoMeaningForMany) {
  EXPECT_EQ(Parse({"--generate", "5", "--seed", "3", "--transport", "gloo"}), "");
  EXPECT_THAT(Parse({"--generate", "5", "--bucket-bytes", "9"}),
              testing::HasSubstr("--bucket-bytes"));
}

}  // namespace
}  // namespace shardproof
