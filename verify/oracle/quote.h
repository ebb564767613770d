// Names from files in messages: what the pipeline uses too.
#pragma once

#include "src/text/quote.h"

namespace shardproof::oracle {

using text::Printable;
using text::Quote;

}  // namespace shardproof::oracle
