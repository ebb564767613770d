#include "src/optim/reduce.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "src/model/whole.h"
#include "src/optim/backward.h"
#include "src/optim/elements.h"

namespace shardproof {
namespace {

constexpr const char* kShardAxis = "dp_shard";
constexpr const char* kReplicaAxis = "dp_replicate";

using Floats = std::vector<float>;

float GrainOf(size_t samples, at::ScalarType dtype) {
  const int bits = dtype == at::kBFloat16 ? 8 : 24;
  int exponent = 0;
  std::frexp(3.0 / 16 * static_cast<double>(samples), &exponent);
  return std::ldexp(1.0f, exponent - bits);
}

/// What one rank sends to all.
struct Sent {
  int64_t from = 0;
  std::unique_ptr<Pending> pending;
};

/// Parameters that come and go together.
struct Group {
  std::vector<Slot*> parameters;
  std::vector<std::shared_ptr<Slot>> whole;  ///< their values
  std::vector<Floats> gradients;  ///< of the whole parameters, then of what this rank has of them
  std::vector<Sent> values_sent;
  std::vector<Sent> gradients_sent;
};

class Reduction {
 public:
  Reduction(Optimizer& optimizer, const Batch& batch, const Stages& stages, const Job& job,
            World& world)
      : optimizer_(optimizer),
        batch_(batch),
        own_samples_(stages.samples_of(batch, job.mesh, world.rank())),
        dtype_(*job.training.reduce),
        stages_(stages),
        job_(job),
        world_(world) {}

  /// Makes the groups and all their memory.
  Status Allocate() {
    uint64_t bytes = 0;
    optimizer_.gradients.clear();
    return VisitStepped(optimizer_, batch_, [&](Slot& parameter, size_t) -> Status {
      SP_ASSIGN(auto whole, MakeWhole(parameter, *world_.device));
      bytes += whole->value.nbytes();
      if (groups_.empty() || bytes > job_.bucket_bytes) {
        groups_.emplace_back();
        bytes = whole->value.nbytes();
      }
      groups_.back().parameters.push_back(&parameter);
      groups_.back().gradients.emplace_back(whole->value.numel());
      groups_.back().whole.push_back(std::move(whole));
      SP_ASSIGN(optimizer_.gradients[parameter.spec.name], MakeGradient(parameter, *world_.device));
      return Ok();
    });
  }

  Status Run() {
    if (!groups_.empty()) SP_TRY(SendValues(groups_.front()));
    for (size_t i = 0; i < groups_.size(); ++i) {
      if (i + 1 < groups_.size()) SP_TRY(SendValues(groups_[i + 1]));
      SP_TRY(ReceiveValues(groups_[i]));
      Compute(groups_[i]);
      if (i > 0) SP_TRY(Finish(groups_[i - 1]));
      SP_TRY(SendGradients(groups_[i], kShardAxis));
    }
    return groups_.empty() ? Ok() : Finish(groups_.back());
  }

 private:
  Shard ShardAt(const Slot& parameter, int64_t rank) const {
    return stages_.chunk(parameter, parameter.placements, job_.mesh, job_.mesh.CoordinatesOf(rank));
  }

  /// What a rank sends of a parameter's values: of replicas the first does.
  Shard ValuesFrom(int64_t rank, const Slot& parameter) const {
    const bool gives = IsFirstReplica(parameter.placements, job_.mesh.CoordinatesOf(rank));
    return gives ? ShardAt(parameter, rank) : Shard{};
  }

  /// Starts sending a payload of every rank that has any to send.
  /// \param bytes_of  of the i-th parameter of the group, that a rank sends
  /// \param pack      puts this rank's there
  Status Send(const Group& group, const std::function<uint64_t(int64_t rank, size_t i)>& bytes_of,
              const std::function<void(size_t i, std::byte* to)>& pack, std::vector<Sent>& sent) {
    for (int64_t rank = 0; rank < world_.communicator->world_size(); ++rank) {
      std::vector<shardproof::Piece> pieces;  // offload.cc has another
      uint64_t bytes = 0;
      for (size_t i = 0; i < group.parameters.size(); ++i) {
        const uint64_t length = bytes_of(rank, i);
        if (length > 0) pieces.push_back({group.parameters[i]->spec.name, 0, length, bytes});
        bytes += length;
      }
      if (bytes == 0) continue;
      const at::Tensor payload = at::empty({static_cast<int64_t>(bytes)}, at::kByte);
      auto* to = static_cast<std::byte*>(payload.mutable_data_ptr());
      for (size_t i = 0; rank == world_.rank() && i < group.parameters.size(); ++i) {
        pack(i, to);
        to += bytes_of(rank, i);
      }
      SP_ASSIGN(auto pending, world_.communicator->Broadcast(payload, rank, std::move(pieces)));
      sent.push_back({rank, std::move(pending)});
    }
    return Ok();
  }

  Status SendValues(Group& group) {
    const auto bytes_of = [&](int64_t rank, size_t i) {
      const Slot& parameter = *group.parameters[i];
      return ValuesFrom(rank, parameter).ElementCount() * parameter.ElementBytes();
    };
    const auto pack = [&](size_t i, std::byte* to) {
      group.parameters[i]->CopyOut(0, to, bytes_of(world_.rank(), i));
    };
    return Send(group, bytes_of, pack, group.values_sent);
  }

  Status ReceiveValues(Group& group) {
    for (const Sent& sent : group.values_sent) {
      SP_ASSIGN(const at::Tensor payload, sent.pending->Wait());
      const auto* from = static_cast<const std::byte*>(payload.const_data_ptr());
      for (size_t i = 0; i < group.parameters.size(); ++i) {
        const Shard shard = ValuesFrom(sent.from, *group.parameters[i]);
        PutShard(*group.whole[i], shard, from);
        from += shard.ElementCount() * group.whole[i]->ElementBytes();
      }
    }
    group.values_sent.clear();
    return Ok();
  }

  /// Adds up the gradients of this rank's samples.
  void Compute(Group& group) {
    Gradients made(batch_, optimizer_);
    const float grain = GrainOf(batch_.samples.size(), dtype_);
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      Slot& whole = *group.whole[i];
      Floats& sums = group.gradients[i];
      for (uint64_t begin = 0; begin < sums.size(); begin += Gradients::kElementsMax) {
        const uint64_t count = std::min(Gradients::kElementsMax, sums.size() - begin);
        const HostChunk values(whole, begin, count);
        for (const int64_t sample : own_samples_) {
          const float* gradients = made.OfSample(whole, values.data(), sample, begin, count);
          for (uint64_t k = 0; k < count; ++k) {
            sums[begin + k] += std::trunc(gradients[k] / grain) * grain;
          }
        }
      }
      whole.value = at::Tensor();  // its memory is for the next ones
    }
  }

  /// Starts sending what this rank has added up so far.
  Status SendGradients(Group& group, const std::string& axis) {
    const auto bytes_of = [&](int64_t rank, size_t i) {
      const Slot& parameter = *group.parameters[i];
      const uint64_t elements =
          axis == kShardAxis ? group.gradients[i].size() : ShardAt(parameter, rank).ElementCount();
      return elements * c10::elementSize(dtype_);
    };
    const auto pack = [&](size_t i, std::byte* to) {
      const Floats& gradients = group.gradients[i];
      FromFloats(dtype_, gradients.data(), gradients.size(), to);
    };
    return Send(group, bytes_of, pack, group.gradients_sent);
  }

  /// Adds up what the ranks along an axis have sent, of what this rank has of each parameter.
  Status ReceiveGradients(Group& group, const std::string& axis) {
    const std::vector<int64_t> peers = stages_.ranks_along(job_.mesh, axis, world_.rank());
    std::vector<Floats> sums;
    for (const Slot* parameter : group.parameters) {
      sums.emplace_back(parameter->shard.ElementCount());
    }
    for (const Sent& sent : group.gradients_sent) {
      SP_ASSIGN(const at::Tensor payload, sent.pending->Wait());
      if (!std::binary_search(peers.begin(), peers.end(), sent.from)) continue;
      const auto* from = static_cast<const std::byte*>(payload.const_data_ptr());
      for (size_t i = 0; i < sums.size(); ++i) {
        const Slot& parameter = *group.parameters[i];
        const bool is_whole = axis == kShardAxis;
        Floats arrived(is_whole ? group.gradients[i].size()
                                : ShardAt(parameter, sent.from).ElementCount());
        ToFloats(dtype_, from, arrived.size(), arrived.data());
        from += arrived.size() * c10::elementSize(dtype_);
        AddTo(sums[i], is_whole ? OwnOf(parameter, arrived) : arrived);
      }
    }
    group.gradients_sent.clear();
    group.gradients = std::move(sums);
    return Ok();
  }

  /// What this rank has of a whole parameter's gradients.
  static Floats OwnOf(const Slot& parameter, const Floats& whole) {
    Floats own;
    for (const ElementRun& run : parameter.shard.runs) {
      for (uint64_t i = 0; i < run.count; ++i) {
        const auto begin = whole.begin() + static_cast<int64_t>(run.start + i * run.stride);
        own.insert(own.end(), begin, begin + static_cast<int64_t>(run.length));
      }
    }
    return own;
  }

  static void AddTo(Floats& sums, const Floats& gradients) {
    for (size_t i = 0; i < std::min(sums.size(), gradients.size()); ++i) sums[i] += gradients[i];
  }

  /// Waits for the first phase, makes the second, and stores the mean.
  Status Finish(Group& group) {
    SP_TRY(ReceiveGradients(group, kShardAxis));
    SP_TRY(SendGradients(group, kReplicaAxis));
    SP_TRY(ReceiveGradients(group, kReplicaAxis));
    const float weight = 1.0f / static_cast<float>(batch_.samples.size());
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      Floats& mean = group.gradients[i];
      for (float& gradient : mean) gradient *= weight;
      const Slot& stored = *optimizer_.gradients.at(group.parameters[i]->spec.name);
      if (!mean.empty()) stored.CopyIn(0, mean.data(), mean.size() * sizeof(float));
      mean = {};
    }
    return Ok();
  }

  Optimizer& optimizer_;
  const Batch& batch_;
  const std::vector<int64_t> own_samples_;
  const at::ScalarType dtype_;
  const Stages& stages_;
  const Job& job_;
  World& world_;
  std::vector<Group> groups_;
};

}  // namespace

std::vector<int64_t> SamplesOf(const Batch& batch, const Mesh& mesh, int64_t rank) {
  const std::vector<int64_t> coordinates = mesh.CoordinatesOf(rank);
  size_t ranks = 1;
  size_t own = 0;
  for (size_t i = 0; i < mesh.axes.size(); ++i) {
    const MeshAxis& axis = mesh.axes[i];
    if (axis.name != kShardAxis && axis.name != kReplicaAxis) continue;
    ranks *= static_cast<size_t>(axis.size);
    own = own * static_cast<size_t>(axis.size) + static_cast<size_t>(coordinates[i]);
  }
  std::vector<int64_t> samples;
  for (size_t i = own; i < batch.samples.size(); i += ranks) samples.push_back(batch.samples[i]);
  return samples;
}

std::vector<int64_t> RanksAlong(const Mesh& mesh, const std::string& axis, int64_t rank) {
  std::vector<int64_t> ranks;
  for (int64_t other = 0; other < mesh.WorldSize(); ++other) {
    std::vector<int64_t> coordinates = mesh.CoordinatesOf(other);
    for (size_t i = 0; i < mesh.axes.size(); ++i) {
      if (mesh.axes[i].name == axis) coordinates[i] = mesh.CoordinatesOf(rank)[i];
    }
    if (coordinates == mesh.CoordinatesOf(rank)) ranks.push_back(other);
  }
  return ranks;
}

Status ReduceGradients(Model& model, const Batch& batch, const Stages& stages, const Job& job,
                       World& world) {
  Reduction reduction(*model.optimizer, batch, stages, job, world);
  SP_TRY(Agree(*world.communicator, reduction.Allocate(), "memory of gradients"));
  return reduction.Run();
}

}  // namespace shardproof
