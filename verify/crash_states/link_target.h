// Where symbolic links lead, told so that it holds for a copy of the directory elsewhere.
#pragma once

#include <string>

#include "src/core/result.h"

namespace shardproof::crash {

/// A target that starts so leads on from the directory that is looked at, wherever that lies.
constexpr const char* kFromRoot = "//";

/// \param root    the directory that is looked at, canonical
/// \param place   of the link's directory below it, parts joined by '/'; empty: it is the root
/// \param target  as readlink(2) gives it
/// \return what leads below root without its path: kFromRoot and the rest of an absolute target,
///   a relative one as it is. An absolute one that leads elsewhere stays as it is.
/// \error kUnsupported if it is relative and leaves the root.
Result<std::string> TellTarget(const std::string& root, const std::string& place,
                               const std::string& target);

/// What symlink(2) is to be told, so that a link in `place` leads where `told` says.
std::string TargetIn(const std::string& place, const std::string& told);

/// The path below the root that a link in `place` names, without parts "." and ".."; empty for the
/// root. Of a link that leads elsewhere what no path is: its absolute target.
std::string PathOfTarget(const std::string& place, const std::string& told);

/// Of a name in a directory at `place`; empty: that is the root.
std::string Joined(const std::string& place, const std::string& name);

/// For people: "step-1", "ROOT/step-1".
std::string TargetText(const std::string& told);

}  // namespace shardproof::crash
