#include "src/pickle/pickle_writer.h"

#include <bit>
#include <cstring>
#include <limits>

namespace shardproof::pickle {

PickleWriter::PickleWriter() : bytes_("\x80\x02") {}

template <typename Number>
void PickleWriter::PutNumber(Number number) {
  char raw[sizeof number];
  std::memcpy(raw, &number, sizeof number);  // little-endian, as this machine is
  bytes_.append(raw, sizeof number);
}

void PickleWriter::Integer(int64_t value) {
  if (value >= 0 && value <= std::numeric_limits<uint8_t>::max()) {
    Put('K');
    PutNumber(static_cast<uint8_t>(value));
  } else if (value >= 0 && value <= std::numeric_limits<uint16_t>::max()) {
    Put('M');
    PutNumber(static_cast<uint16_t>(value));
  } else if (value == static_cast<int32_t>(value)) {
    Put('J');
    PutNumber(static_cast<int32_t>(value));
  } else {
    Put('\x8a');
    PutNumber(uint8_t{8});
    PutNumber(value);
  }
}

void PickleWriter::Float(double value) {
  Put('G');
  PutNumber(__builtin_bswap64(std::bit_cast<uint64_t>(value)));
}

void PickleWriter::Text(std::string_view utf8) {
  Put('X');
  PutNumber(static_cast<uint32_t>(utf8.size()));
  bytes_ += utf8;
}

void PickleWriter::Name(std::string_view module, std::string_view name) {
  for (size_t place = 0; place < names_.size(); ++place) {
    if (names_[place].first != module || names_[place].second != name) continue;
    Put('j');
    PutNumber(static_cast<uint32_t>(place));
    return;
  }
  Put('c');
  bytes_.append(module) += '\n';
  bytes_.append(name) += '\n';
  Put('r');
  PutNumber(static_cast<uint32_t>(names_.size()));
  names_.emplace_back(module, name);
}

void PickleWriter::Integers(const std::vector<int64_t>& values) {
  Mark();
  for (const int64_t value : values) Integer(value);
  Tuple();
}

void PickleWriter::Size(const std::vector<int64_t>& values) {
  Name("torch", "Size");
  Mark();
  Integers(values);
  Tuple();
  Reduce();
}

std::string PickleWriter::Finish() {
  Put('.');
  return std::move(bytes_);
}

}  // namespace shardproof::pickle
