// The environment in which a program is struck: what is loaded before its own libraries, and what
// these are told. For whoever starts it; nothing here runs in it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/core/result.h"

namespace shardproof::interpose {

using Environment = std::map<std::string, std::string>;

/// Name of the library in the command's folder.
inline constexpr const char* kLibrary = "libshardproof_interpose.so";

/// Where libfiu's preload libraries may be.
const std::vector<std::string>& FiuFolders();

struct Interposed {
  std::string library;    ///< path of kLibrary
  std::string rules;      ///< as rule.h says
  std::string log;        ///< absolute path of a file; firings are appended, a line each
  std::string preloaded;  ///< the LD_PRELOAD that there is, which comes after
  std::vector<std::string> fiu_folders = FiuFolders();
};

/// Variables for a program with these rules. Where a rule is about a point of libfiu's, its POSIX
/// preload is loaded too.
/// \error kBadInput  for a wrong rule, a path that LD_PRELOAD or the log cannot have
/// \error kUnsupported  if a library is not there: it was not built, or libfiu is not installed
Result<Environment> InterposeEnvironment(const Interposed& interposed);

/// What fiu-run sets for one point, without the interposer: nothing is logged when it fires.
///   POINT:error=ERRNO,onetime                     the first call
///   POINT:error=ERRNO,always
///   POINT:error=ERRNO,probability=P,seed=S        each call with P, 0 < P < 1; S from 1
/// \error kBadInput  for a wrong text: a probability without a seed, a point that the library does
///                   not have, no errno (libfiu would draw one)
/// \error kUnsupported  if libfiu's preload is not installed
Result<Environment> FiuEnvironment(const std::string& text, const std::string& preloaded = "",
                                   const std::vector<std::string>& folders = FiuFolders());

}  // namespace shardproof::interpose
