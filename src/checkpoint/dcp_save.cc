// Writing what was planned.
#include <algorithm>

#include "src/checkpoint/dcp.h"
#include "src/checkpoint/write_whole.h"
#include "src/model/host_bytes.h"

namespace shardproof {
namespace {

constexpr uint64_t kSmallBytesMax = 64u << 10;  // what is not larger is gathered
// Of what is written from where it lies: so little is still in the cache after its write.
constexpr uint64_t kPieceBytesMax = 512u << 10;

/// A file that is written from its begin to its end, but for gaps: what is small goes into one
/// write with what is beside it, what is large from where it lies.
class Sequence {
 public:
  /// \param frame  called with every stretch of what is no tensor's, and where it begins.
  Sequence(OutputFile& file, std::function<void(uint64_t, std::string_view)> frame)
      : file_(file), frame_(std::move(frame)) {}

  /// Where the next bytes go. At most kItemAlignment bytes are skipped, as zeros.
  Status SkipTo(uint64_t offset) {
    const std::string zeros(offset - at_ - staged_.size(), '\0');
    return PutFrame(zeros);
  }

  Status PutFrame(std::string_view bytes) {
    frame_(at_ + staged_.size(), bytes);
    return Put(bytes);
  }

  /// A tensor's.
  Status Put(std::string_view bytes) {
    if (staged_.size() + bytes.size() > kStagedBytesMax) SP_TRY(Flush());
    if (bytes.size() <= kSmallBytesMax) {
      staged_ += bytes;
      return Ok();
    }
    SP_TRY(Flush());
    SP_TRY(file_.WriteAt(at_, bytes));
    at_ += bytes.size();
    return Ok();
  }

  /// Writes a tensor's bytes where they begin `ahead` bytes behind all that was put.
  Status WriteAhead(uint64_t ahead, std::string_view bytes) {
    return file_.WriteAt(at_ + staged_.size() + ahead, bytes);
  }
  /// Passes over bytes that were written ahead, once all before them is put.
  Status Pass(uint64_t bytes) {
    SP_TRY(Flush());
    at_ += bytes;
    return Ok();
  }

  Status Flush() {
    if (!staged_.empty()) SP_TRY(file_.WriteAt(at_, staged_));
    at_ += staged_.size();
    staged_.clear();
    return Ok();
  }

 private:
  OutputFile& file_;
  std::function<void(uint64_t, std::string_view)> frame_;
  std::string staged_;  ///< follows what is written
  uint64_t at_ = 0;     ///< bytes written
};

/// Calls visit(bytes, where they begin) for the stretches of a slot's local bytes [begin, end), in
/// their order, where the host reads them.
template <typename Visit>
Status VisitBytes(const Slot& slot, uint64_t begin, uint64_t end, Visit visit) {
  const auto* data = reinterpret_cast<const char*>(HostBytes(slot));
  const bool as_it_lies = data != nullptr;
  std::string staged;
  for (uint64_t done = begin; done < end;) {
    const uint64_t length = std::min(end - done, as_it_lies ? kPieceBytesMax : kStagedBytesMax);
    if (as_it_lies) {
      SP_TRY(visit(std::string_view(data + done, length), done));
    } else {
      staged.resize(length);
      slot.CopyOut(done, staged.data(), length);
      SP_TRY(visit(std::string_view(staged), done));
    }
    done += length;
  }
  return Ok();
}

Status WriteValue(const DcpItem& planned, Sequence& out) {
  SP_TRY(out.SkipTo(planned.offset));
  SP_TRY(out.PutFrame(planned.item.Head(0)));
  return out.PutFrame(planned.item.Tail(0));
}

/// \param digest  called with what was written of the slot's shard: it is still in the cache.
template <typename TakeDigest>
Status WriteTensor(const DcpItem& planned, const Slot& slot, Sequence& out, TakeDigest digest) {
  SP_TRY(out.SkipTo(planned.offset));
  const uint64_t begin = planned.box.local_start * slot.ElementBytes();
  const uint64_t end = begin + planned.item.data_bytes();
  uint32_t crc = 0;
  if (end - begin <= kSmallBytesMax) {
    SP_TRY(VisitBytes(slot, begin, end, [&](std::string_view bytes, uint64_t) -> Status {
      crc = Crc32(crc, bytes);
      return Ok();
    }));
    SP_TRY(out.PutFrame(planned.item.Head(crc)));
    SP_TRY(VisitBytes(slot, begin, end,
                      [&](std::string_view bytes, uint64_t) { return out.Put(bytes); }));
    digest(ByteSpan{begin, end});
    return out.PutFrame(planned.item.Tail(crc));
  }
  // The archive says the CRC before the bytes, but is told it after them: they come from memory
  // once, by the copy into the file, and are in the cache for all else.
  const uint64_t head_bytes = planned.item.data_offset();
  SP_TRY(VisitBytes(slot, begin, end, [&](std::string_view bytes, uint64_t at) -> Status {
    SP_TRY(out.WriteAhead(head_bytes + (at - begin), bytes));
    crc = Crc32(crc, bytes);
    digest(ByteSpan{at, at + bytes.size()});
    return Ok();
  }));
  SP_TRY(out.PutFrame(planned.item.Head(crc)));
  SP_TRY(out.Pass(end - begin));
  return out.PutFrame(planned.item.Tail(crc));
}

}  // namespace

Result<SaveDigests> WriteDcpFile(const StateDict& state, const DcpFile& planned,
                                 const Stages& stages, const std::string& directory, World& world) {
  SaveDigests digests;
  if (planned.items.empty()) return digests;
  const std::string path = directory + "/" + planned.name;
  SP_TRY(world.files->Create(path, planned.size));
  SP_ASSIGN(const auto file, world.files->OpenForWrite(path));
  digests.files[path].bytes = planned.size;
  Sequence out(*file, [&](uint64_t offset, std::string_view bytes) {
    digests.AddFrame(path, offset, bytes);
  });
  for (const DcpItem& item : planned.items) {
    const StateTensor* tensor = item.is_tensor ? &state.tensors[item.entry] : nullptr;
    const Status written = tensor == nullptr
                               ? WriteValue(item, out)
                               : WriteTensor(item, *tensor->slot, out, [&](ByteSpan local) {
                                   const ByteSpan image = tensor->image();
                                   digests.tensors[{tensor->slot.get(), image}] +=
                                       stages.digest(*tensor->slot, image, local);
                                 });
    if (written.ok()) continue;
    const std::string key = FlatKey(tensor ? tensor->paths.front() : state.values[item.entry].path);
    return written.error().While("saving '" + key + "'");
  }
  SP_TRY(out.Flush());
  SP_TRY(file->Sync());
  return digests;
}

}  // namespace shardproof
