// Checkpoints in archives that GNU tar and Python wrote, and behind a URL that a stand-in answers
// for; sound and not.
#include "verify/formats/archive.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "verify/formats/stored.h"
#include "verify/oracle/fixture_files.h"
#include "verify/oracle/listing.h"
#include "verify/process/program.h"

namespace shardproof::formats {
namespace {

namespace fs = std::filesystem;

/// A directory with a folder "dcp", in which commands run.
class Archives : public ::testing::Test {
 protected:
  Archives() {
    fs::copy(std::string(SHARDPROOF_STORED) + "/dcp_2.15.0", folder_ / "dcp",
             fs::copy_options::recursive);
  }
  ~Archives() override {
    for (const std::string& path : opened_) oracle::Unmount(path);
  }

  void Run(const std::string& script) {
    const auto ended = RunProgram({"bash", "-ec", "cd '" + folder_.path() + "'; " + script},
                                  std::chrono::seconds(20));
    ASSERT_TRUE(ended.ok() && ended.value().ok()) << script << ended.value().error_tail;
  }

  Result<StoredCheckpoint> Open(const std::string& name) {
    opened_.push_back(name.find("://") == std::string::npos ? folder_ / name : name);
    oracle::Unmount(opened_.back());
    return OpenStored(opened_.back());
  }

  void ExpectWhole(const std::string& name) {
    const auto read = Open(name);
    ASSERT_TRUE(read.ok()) << read.error().message;
    ASSERT_EQ(read.value().tensors.size(), 6u) << name;
    EXPECT_EQ(read.value().tensors[0].name, "columns") << name;
    const auto file = oracle::InputFile::Open(read.value().files[0].path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    std::string bytes(file.value()->size(), '\0');
    ASSERT_TRUE(file.value()->ReadAt(0, bytes.size(), bytes.data()).ok());
    const auto plain =
        oracle::ReadWholeFile(folder_ / ("dcp/" + read.value().files[0].name), uint64_t{1} << 20);
    ASSERT_TRUE(plain.ok());
    EXPECT_EQ(bytes, plain.value()) << name;
  }

  void ExpectRefused(const std::string& name, const std::string& why) {
    const auto read = Open(name);
    ASSERT_FALSE(read.ok()) << name;
    EXPECT_NE(read.error().message.find(why), std::string::npos) << read.error().message;
    EXPECT_EQ(read.error().message.find('\n'), std::string::npos);
  }

  oracle::TemporaryDirectory folder_;
  std::vector<std::string> opened_;
};

TEST_F(Archives, AreReadAsTheDirectoryThatWasPacked) {
  Run("long=$(printf 'a%.0s' {1..120}); mkdir -p $long/$long; cp -r dcp $long/$long/dcp;"
      "tar cf dcp.tar dcp; tar cf dots.tar -C dcp .; tar czf dcp.tgz dcp; tar cf long.tar $long;"
      "tar --format=posix -cf pax.tar $long; tar --format=ustar -cf ustar.tar dcp;"
      "mkdir links; cp -r dcp links/dcp; ln links/dcp/__0_0.distcp links/same;"
      "ln -s dcp/__1_0.distcp links/soft; ln -s dcp links/folder; tar cf links.tar links/dcp;"
      "tar rf links.tar links/same links/soft links/folder;"
      "(head -c 700 dcp.tar | gzip; tail -c +701 dcp.tar | gzip) >two.tar.gz;"
      "python3 -c 'import shutil; shutil.make_archive(\"deflated\", \"zip\", \".\", \"dcp\")';"
      "python3 -c 'import zipfile, pathlib; z = zipfile.ZipFile(\"plain.zip\", \"w\");"
      "[z.write(p) for p in pathlib.Path(\"dcp\").iterdir()]; z.close()';"
      "mkdir -p finder/__MACOSX/dcp; cp -r dcp finder; echo x >finder/__MACOSX/dcp/._.metadata;"
      "python3 -c 'import shutil; shutil.make_archive(\"finder\", \"zip\", \"finder\")'");
  for (const char* name : {"dcp.tar", "dots.tar", "dcp.tgz", "long.tar", "pax.tar", "ustar.tar",
                           "two.tar.gz", "deflated.zip", "plain.zip", "finder.zip"}) {
    ExpectWhole(name);
  }
  EXPECT_TRUE(Open("links.tar").ok());
  EXPECT_TRUE(oracle::IsFile(folder_ / "links.tar/soft"));
  EXPECT_EQ(oracle::FileBytes(folder_ / "links.tar/same"),
            fs::file_size(folder_ / "dcp/__0_0.distcp"));
}

TEST_F(Archives, TakeOneDescriptorForAllThatIsInflated) {
  Run("for i in 1 2 3 4 5 6 7 8 9; do cp dcp/__0_0.distcp dcp/$i.pt; done;"
      "python3 -c 'import shutil; shutil.make_archive(\"many\", \"zip\", \".\", \"dcp\")'");
  const auto count = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  const auto before = count();
  ASSERT_TRUE(Open("many.zip").ok());
  for (const char* name : {"1.pt", "5.pt", "9.pt", "2.pt"}) {
    const auto file = oracle::InputFile::Open(folder_ / "many.zip/" + name);
    ASSERT_TRUE(file.ok()) << file.error().message;
    std::string bytes(file.value()->size(), '\0');
    ASSERT_TRUE(file.value()->ReadAt(0, bytes.size(), bytes.data()).ok());
    const auto plain = oracle::ReadWholeFile(folder_ / "dcp/__0_0.distcp", uint64_t{1} << 20);
    EXPECT_EQ(bytes, plain.value()) << name;
  }
  EXPECT_EQ(count(), before + 2) << "the archive, and what is inflated";
}

TEST_F(Archives, AreRefusedInOneLineIfTheyAreNotWhole) {
  Run("tar cf whole.tar dcp; head -c 2000 whole.tar >cut.tar;"
      "tar -b1 -cf short.tar dcp; head -c $(($(stat -c %s short.tar) - 1024)) short.tar >end.tar;"
      "gzip -c whole.tar | head -c 300 >cut.tgz; gzip -c dcp/.metadata >no.tar.gz;"
      "cp whole.tar sum.tar; printf X | dd of=sum.tar bs=1 seek=3 conv=notrunc status=none;"
      "cp whole.tar zeros.tar; head -c 512 /dev/zero | dd of=zeros.tar bs=512 seek=1 conv=notrunc"
      " status=none");
  ExpectRefused("cut.tar", "cut short");
  ExpectRefused("end.tar", "a block of zeros, the archive's end, found none: cut short");
  ExpectRefused("cut.tgz", "the end: cut short");
  ExpectRefused("no.tar.gz", "expected an archive of tar in it");
  ExpectRefused("sum.tar", "expected a header with its checksum");
  ExpectRefused("zeros.tar", "expected the archive's end, zeros, found more");
}

TEST_F(Archives, MayNotLeadOutOfThemselves) {
  Run("tar cf inner.tar dcp; tar cf outer.tar inner.tar; tar cPf absolute.tar \"$PWD/dcp\";"
      "mkdir sub; (cd sub; tar cPf ../up.tar ../dcp); ln -s /etc/passwd dcp/away.pt;"
      "tar cf link.tar dcp; mkfifo dcp/fifo; rm dcp/away.pt; tar cf fifo.tar dcp;"
      "python3 -c 'import zipfile; z = zipfile.ZipFile(\"up.zip\", \"w\");"
      "z.writestr(\"../w.safetensors\", \"x\"); z.close();"
      "z = zipfile.ZipFile(\"link.zip\", \"w\"); i = zipfile.ZipInfo(\"w.safetensors\");"
      "i.create_system, i.external_attr = 3, 0o120777 << 16; z.writestr(i, \"x\"); z.close()'");
  ExpectRefused("outer.tar", "the archive 'inner.tar', which is not read inside of another");
  ExpectRefused("absolute.tar", "expected names inside the archive");
  ExpectRefused("up.tar", "expected names inside the archive, found '../dcp/'");
  ExpectRefused("link.tar", "a link to '/etc/passwd'");
  ExpectRefused("fifo.tar", "expected files, folders and links, found 'dcp/fifo'");
  ExpectRefused("link.zip", "expected files and folders, found a link: 'w.safetensors'");
  ExpectRefused("up.zip", "expected names inside the archive, found '../w.safetensors'");
}

/// Answers as the package's _urls.py does, out of a folder; says `answer` instead of bytes, if that
/// is not empty.
std::string StandIn(const std::string& folder, const std::string& answer) {
  return "import json, os, sys\n"
         "folder = '" +
         folder +
         "'\n"
         "names = sorted(os.listdir(folder))\n"
         "def listed():\n"
         "    print(json.dumps({'files': [[n, os.path.getsize(folder + '/' + n), ''] for n in"
         " sorted(os.listdir(folder))]}), flush=True)\n"
         "listed()\n"
         "for line in sys.stdin:\n"
         "    asked = json.loads(line)\n"
         "    if asked == 'list':\n"
         "        listed()\n"
         "        continue\n"
         "    " +
         answer +
         "\n"
         "    index, start, length = asked\n"
         "    data = open(folder + '/' + names[index], 'rb').read()[start:start + length]\n"
         "    sys.stdout.buffer.write(json.dumps({'bytes': len(data)}).encode() + b'\\n' + data)\n"
         "    sys.stdout.buffer.flush()\n";
}

TEST_F(Archives, BehindAUrlAreAskedForByRanges) {
  const auto answer_by = [&](const std::string& answer) {
    ReadUrlsBy({"python3", "-c", StandIn(folder_ / "dcp", answer)});
  };
  answer_by("");
  ExpectWhole("s3://bucket/run/step-1");
  EXPECT_TRUE(CheckUrls().ok());
  std::ofstream(folder_ / "dcp/.metadata", std::ios::app) << "x";
  const Status changed = CheckUrls();
  ASSERT_FALSE(changed.ok());
  EXPECT_NE(changed.error().message.find("'.metadata' changed"), std::string::npos);
  answer_by("print(json.dumps({'error': '403 Forbidden'}), flush=True); continue");
  ExpectRefused("s3://bucket/denied", "403 Forbidden");
  answer_by("asked[2] //= 2");
  ExpectRefused("s3://bucket/short", "it has changed");
  answer_by("print('what?', flush=True); continue");
  ExpectRefused("s3://bucket/garbage", "no answer");
  answer_by("sys.exit()");
  ExpectRefused("s3://bucket/gone", "ended without an answer");
  setenv("SHARDPROOF_URL_SECONDS", "1", 1);
  answer_by("import time; time.sleep(60)");
  ExpectRefused("s3://bucket/stalls", "no answer within 1 s");
  unsetenv("SHARDPROOF_URL_SECONDS");
  ExpectRefused("ftp://bucket", "a URL of a kind that is not read");
  ReadUrlsBy({});
}

}  // namespace
}  // namespace shardproof::formats
