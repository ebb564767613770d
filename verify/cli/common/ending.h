// What a command says where a signal ends it: how far it has come.
#pragma once

#include <string>

namespace shardproof {

/// From now on SIGINT and SIGTERM, which still end this process, have it say first how far it came.
/// What it has forked ends without a word.
void TellWhenEnded();

/// What it does now, such as "train: 2 ranks, plain"; empty: nothing is left to be done.
void NoteProgress(const std::string& line);

}  // namespace shardproof
