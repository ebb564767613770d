// Views put together at random, held against the same steps on plain arrays.
#include "verify/maps/view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <random>

#include "verify/oracle/fixture_files.h"

namespace shardproof::maps {
namespace {

/// Row-major values.
struct Plain {
  std::vector<int64_t> shape;
  std::vector<int32_t> values;

  uint64_t Step(size_t dim) const {
    return std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(dim) + 1, shape.end(),
                           uint64_t{1}, std::multiplies<>());
  }
  int64_t At(uint64_t element, size_t dim) const {
    return static_cast<int64_t>(element / Step(dim)) % shape[dim];
  }
};

/// The array of that shape whose element i is value(i).
template <typename Value>
Plain Filled(std::vector<int64_t> shape, Value value) {
  Plain made{std::move(shape), {}};
  const uint64_t elements =
      std::accumulate(made.shape.begin(), made.shape.end(), uint64_t{1}, std::multiplies<>());
  for (uint64_t i = 0; i < elements; ++i) made.values.push_back(value(made, i));
  return made;
}

Plain Narrowed(const Plain& from, size_t dim, int64_t start, int64_t length) {
  std::vector<int64_t> shape = from.shape;
  shape[dim] = length;
  return Filled(shape, [&](const Plain& to, uint64_t i) {
    uint64_t at = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      at += static_cast<uint64_t>(to.At(i, d) + (d == dim ? start : 0)) * from.Step(d);
    }
    return from.values[at];
  });
}

Plain Permuted(const Plain& from, const std::vector<size_t>& order) {
  std::vector<int64_t> shape;
  for (const size_t dim : order) shape.push_back(from.shape[dim]);
  return Filled(shape, [&](const Plain& to, uint64_t i) {
    uint64_t at = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      at += static_cast<uint64_t>(to.At(i, d)) * from.Step(order[d]);
    }
    return from.values[at];
  });
}

Plain Joined(const Plain& x, const Plain& y, size_t dim) {
  std::vector<int64_t> shape = x.shape;
  shape[dim] += y.shape[dim];
  return Filled(shape, [&](const Plain& to, uint64_t i) {
    const bool first = to.At(i, dim) < x.shape[dim];
    const Plain& from = first ? x : y;
    uint64_t at = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      const int64_t skipped = d == dim && !first ? x.shape[dim] : 0;
      at += static_cast<uint64_t>(to.At(i, d) - skipped) * from.Step(d);
    }
    return from.values[at];
  });
}

class ViewTest : public ::testing::Test {
 protected:
  struct Both {
    ViewPtr view;
    Plain plain;
  };

  ViewTest() {
    std::vector<int32_t> values(kElements);
    std::iota(values.begin(), values.end(), 0);
    std::ofstream(path_, std::ios::binary)
        << std::string(reinterpret_cast<const char*>(values.data()), 4 * values.size());
    tensor_.chunks.push_back({.offsets = {0, 0, 0},
                              .sizes = tensor_.shape,
                              .strides = formats::RowMajorStrides(tensor_.shape)});
  }

  uint64_t Draw(uint64_t below) { return draw_() % below; }

  Both Whole() {
    return {Stored(tensor_),
            Filled(tensor_.shape, [](const Plain&, uint64_t i) { return int32_t(i); })};
  }

  /// One step; a part that cannot be taken is left as it is, and counted.
  Both Stepped(Both now) {
    const size_t dims = now.plain.shape.size();
    const size_t dim = Draw(dims);
    const int64_t rows = now.plain.shape[dim];
    switch (Draw(4)) {
      case 0: {
        const auto start = static_cast<int64_t>(Draw(static_cast<uint64_t>(rows)));
        const auto length = 1 + static_cast<int64_t>(Draw(static_cast<uint64_t>(rows - start)));
        const auto view = Narrow(now.view, dim, start, length);
        ++(view.ok() ? narrowed_ : refused_);
        if (!view.ok()) return now;
        return {view.value(), Narrowed(now.plain, dim, start, length)};
      }
      case 1: {
        std::vector<size_t> order(dims);
        std::iota(order.begin(), order.end(), size_t{0});
        std::shuffle(order.begin(), order.end(), draw_);
        return {Permute(now.view, order).value(), Permuted(now.plain, order)};
      }
      case 2: {
        std::vector<int64_t> shape = now.plain.shape;
        if (dims > 2) {
          shape[0] *= shape[1];
          shape.erase(shape.begin() + 1);
        } else {
          shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(dim), rows % 2 == 0 ? 2 : 1);
          if (rows % 2 == 0) shape[dim + 1] /= 2;
        }
        return {Reshape(now.view, shape).value(), {shape, now.plain.values}};
      }
      default: {
        if (now.plain.values.size() > 2 * kElements) return now;
        return {Join({now.view, now.view}, dim).value(), Joined(now.plain, now.plain, dim)};
      }
    }
  }

  void ExpectEqual(const Both& both) {
    ASSERT_EQ(both.view->shape, both.plain.shape);
    const Reader reader = Open(
        *both.view,
        [this](const formats::StoredTensor& tensor, uint64_t window) {
          return ReadStored([this](uint32_t) { return oracle::InputFile::Open(path_); }, tensor,
                            window);
        },
        0);
    const uint64_t count = both.plain.values.size();
    for (const uint64_t start : {uint64_t{0}, Draw(count), Draw(count)}) {
      std::vector<int32_t> seen(count - start);
      ASSERT_TRUE(reader->Read(start, seen.size(), reinterpret_cast<char*>(seen.data())).ok());
      ASSERT_TRUE(std::equal(seen.begin(), seen.end(),
                             both.plain.values.begin() + static_cast<std::ptrdiff_t>(start)));
    }
    for (int i = 0; i < 20; ++i) {
      const uint64_t element = Draw(count);
      const Place place = PlaceOf(*both.view, element);
      ASSERT_EQ(place.tensor, &tensor_);
      ASSERT_EQ(static_cast<int32_t>(place.element), both.plain.values[element]);
    }
  }

  static constexpr uint64_t kElements = 6 * 4 * 10;
  std::mt19937_64 draw_{7};
  oracle::TemporaryDirectory directory_;
  std::string path_ = directory_ / "w";
  formats::StoredTensor tensor_{.name = "w", .dtype = "I32", .shape = {6, 4, 10}, .chunks = {}};
  int narrowed_ = 0;
  int refused_ = 0;
};

TEST_F(ViewTest, AnyChainGivesEveryElementAndItsPlace) {
  for (int round = 0; round < 400; ++round) {
    Both both = Whole();
    for (uint64_t steps = 1 + Draw(7); steps > 0; --steps) {
      both = Stepped(std::move(both));
      ExpectEqual(both);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(narrowed_, 200);
  EXPECT_LT(refused_, narrowed_);
}

TEST_F(ViewTest, InterleavesAndPads) {
  const ViewPtr w = Reshape(Whole().view, {24, 10}).value();
  const ViewPtr joined = Interleave({w, w}, 0, 4).value();
  // Of each of 4 groups, 6 rows twice.
  for (const uint64_t row : {0, 5, 6, 11, 12, 47}) {
    const uint64_t expected = row / 12 * 6 + row % 6;
    EXPECT_EQ(PlaceOf(*joined, row * 10).element, expected * 10);
  }
  const ViewPtr padded = PadWithLast(Whole().view, 0, 8).value();
  EXPECT_EQ(PlaceOf(*padded, 7 * 40 + 3).element, 5u * 40 + 3);
  int counted = 0;
  ForEachStored(*padded, [&](const View& box) { counted += !box.repeats; });
  EXPECT_EQ(counted, 1);
  // A row of the reshaped tensor is no box of the stored one.
  EXPECT_FALSE(PadWithLast(w, 0, 30).ok());
}

}  // namespace
}  // namespace shardproof::maps
