// A row that says that its field is copied to the job is right about it, and no other field is.
#include "verify/rank/job_from_case.h"

#include <gtest/gtest.h>

#include <string>

#include "verify/case/fields.h"

namespace shardproof {
namespace {

/// Every scalar of a job that a case may set, as text.
std::string ScalarsOf(const Job& job) {
  const Training& t = job.training;
  std::string text = job.adapter + "," + job.checkpoint + "," + job.save_to;
  for (const double value : {static_cast<double>(job.seed),
                             static_cast<double>(job.bucket_bytes),
                             static_cast<double>(job.max_file_bytes),
                             static_cast<double>(job.from_scratch),
                             static_cast<double>(job.optimizer_first),
                             static_cast<double>(t.steps),
                             t.clip_norm,
                             static_cast<double>(t.masters),
                             static_cast<double>(t.unfreeze_after),
                             t.offload,
                             static_cast<double>(t.overlap),
                             static_cast<double>(t.keep),
                             static_cast<double>(t.async),
                             static_cast<double>(t.gathered),
                             static_cast<double>(t.split_fused),
                             static_cast<double>(t.clip_by_group),
                             static_cast<double>(t.unfrozen_steps),
                             t.without_gradient,
                             static_cast<double>(t.micro_batches),
                             static_cast<double>(t.samples),
                             t.loss_scale,
                             t.average,
                             t.learning_rate,
                             t.rate_decay,
                             t.weight_decay,
                             t.epsilon}) {
    text += "," + std::to_string(value);
  }
  return text;
}

/// Gives the field a value that is not its default.
void Change(const FieldOfCase& field) {
  if (auto* const* flag = std::get_if<bool*>(&field.value)) **flag = !**flag;
  if (auto* const* number = std::get_if<int64_t*>(&field.value)) **number += 1;
  if (auto* const* number = std::get_if<uint64_t*>(&field.value)) **number += 1;
  if (auto* const* number = std::get_if<double*>(&field.value)) **number += 0.5;
  if (auto* const* text = std::get_if<std::string*>(&field.value)) **text += "x";
}

TEST(CopyFields, CopiesTheFieldsWhoseRowsSaySoAndNoOther) {
  Case plain;
  Job usual;
  CopyFields(plain, usual);
  int copied = 0;
  for (const FieldOfCase& field : FieldsOf(plain)) {
    Case changed;
    Change(FieldAt(changed, field.path));
    Job job;
    CopyFields(changed, job);
    EXPECT_EQ(ScalarsOf(job) != ScalarsOf(usual), field.row->copied) << field.path;
    copied += field.row->copied ? 1 : 0;
  }
  EXPECT_EQ(copied, 24);
}

TEST(CopyFields, CopiesAllThatAJobOfTheSameNameHas) {
  Case changed;
  for (const FieldOfCase& field : FieldsOf(changed)) {
    if (field.row->copied) Change(field);
  }
  Job job;
  CopyFields(changed, job);
  EXPECT_EQ(job.seed, changed.seed);
  EXPECT_EQ(job.bucket_bytes, changed.bucket_bytes);
  EXPECT_EQ(job.max_file_bytes, changed.max_file_bytes);
  EXPECT_EQ(job.adapter, changed.model.adapter);
  EXPECT_EQ(job.from_scratch, changed.model.from_scratch);
  EXPECT_EQ(job.training.clip_norm, changed.training.clip_norm);
  EXPECT_EQ(job.training.masters, changed.training.masters);
  EXPECT_EQ(job.training.clip_by_group, changed.training.clip_by_group);
  EXPECT_EQ(job.training.unfreeze_after, changed.training.unfreeze_after);
  EXPECT_EQ(job.training.unfrozen_steps, changed.training.unfrozen_steps);
  EXPECT_EQ(job.training.without_gradient, changed.training.without_gradient);
  EXPECT_EQ(job.training.micro_batches, changed.training.micro_batches);
  EXPECT_EQ(job.training.samples, changed.training.samples);
  EXPECT_EQ(job.training.loss_scale, changed.training.loss_scale);
  EXPECT_EQ(job.training.average, changed.training.average);
  EXPECT_EQ(job.training.overlap, changed.training.overlap);
  EXPECT_EQ(job.training.keep, changed.training.keep);
  EXPECT_EQ(job.training.async, changed.training.async);
  EXPECT_EQ(job.training.gathered, changed.training.gathered);
  EXPECT_EQ(job.training.split_fused, changed.training.split_fused);
  EXPECT_EQ(job.training.learning_rate, changed.training.learning_rate);
  EXPECT_EQ(job.training.rate_decay, changed.training.rate_decay);
  EXPECT_EQ(job.training.weight_decay, changed.training.weight_decay);
  EXPECT_EQ(job.training.epsilon, changed.training.epsilon);
}

}  // namespace
}  // namespace shardproof
