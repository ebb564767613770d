// The plain twin as the oracle sees it: the same model, built and loaded in the plainest way in one
// process of the subject's environment. What the files say of it is read here, and held against it
// first; what they do not say is taken from it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "verify/oracle/oracle.h"

namespace shardproof::oracle {

struct Twin {
  TwinRecord says;
  KeyReport keys;
  DeclaredModel model;
  std::map<std::string, FileTensor> values;  ///< of tensors that have one
  std::vector<OptimizerGroup> groups;        ///< of its optimizer, if it has one
  std::set<std::string> added;               ///< tensors that a framework adds to the model
  std::vector<std::string> on_meta;          ///< tensors that the plain path has left without one
};

/// How a twin ended that has not recorded what it should, in one line.
/// \param before what it did not come to, in words
std::string HowEnded(const RankEvidence& rank, const std::string& before);

/// The twin that a rank has recorded at `ready`. \error kFailed, one line, if there is none: what
/// it raised, or how it ended.
Result<Twin> TwinFrom(const RankEvidence& rank);

/// What the keys at `places` are to the twin's model: its own names; the pieces that it claims
/// where no key of its name and shape is there; every other key is a tensor of its own. What the
/// model has in another floating-point dtype is read as that.
std::vector<PlacedTensor> PlaceTwin(const Twin& twin, const std::vector<TensorLocation>& places);

/// As Consult, of a model that no definition here declares: what it is, and what is expected of it,
/// by the twin and the files.
Result<OracleRecord> ConsultTwin(const Case& test_case, const std::string& source,
                                 const std::vector<CaptureRequest>& captures, const Twin& twin);

}  // namespace shardproof::oracle
