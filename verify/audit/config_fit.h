#pragma once

#include <string>

#include "verify/audit/audit.h"

namespace shardproof {

/// Asks Transformers, in a process of its own, how the checkpoint's tensors fit the model of its
/// config.json. Keys that are missing and tensors of other shapes are damage; tensors that the
/// model does not load are a remark; no answer is something that was not judged.
/// \param python  interpreter that has Transformers.
/// \param package  folder of the Python package `shardproof`.
void HoldConfig(const std::string& python, const std::string& package, AuditResult& result);

}  // namespace shardproof
