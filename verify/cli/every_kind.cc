// The model that a subject is given where nobody says which: every kind of tensor that loading can
// get wrong, below and above a page, what malloc maps by itself, a huge page and the largest bucket
// that frameworks send at once; keys that the checkpoint lacks and others that it has too many.
#include "verify/cli/verify_arguments.h"

namespace shardproof {

const char* const kEveryKindOfTensor = R"json({"schema": 1,
 "why": "no checkpoint was given: a model with every kind of tensor that loading can get wrong",
 "model": {
  "tensors": [
   {"name": "embed.weight", "dtype": "F32", "shape": [13, 6]},
   {"name": "small.weight", "dtype": "F32", "shape": [7, 5]},
   {"name": "small.bias", "dtype": "F32", "shape": [1]},
   {"name": "page.weight", "dtype": "F32", "shape": [32, 32]},
   {"name": "page.over", "dtype": "F32", "shape": [5, 205]},
   {"name": "mapped.weight", "dtype": "F32", "shape": [129, 128]},
   {"name": "huge_page.weight", "dtype": "F32", "shape": [528, 1031]},
   {"name": "bucket.weight", "dtype": "F32", "shape": [3336, 2048]},
   {"name": "rows.weight", "dtype": "F32", "shape": [211, 3]},
   {"name": "frozen.weight", "dtype": "F32", "shape": [9, 2], "requires_grad": false},
   {"name": "adapter.lora_a.weight", "dtype": "F32", "shape": [4, 6]},
   {"name": "adapter.lora_b.weight", "dtype": "F32", "shape": [6, 4], "init": "zeros"},
   {"name": "adapter.scale", "dtype": "F32", "shape": [5], "init": "ones"},
   {"name": "norm.weight", "dtype": "F32", "shape": [10], "init": "ones"},
   {"name": "norm.running_mean", "dtype": "F32", "shape": [10],
    "kind": "buffer"},
   {"name": "norm.steps", "dtype": "I64", "shape": [],
    "kind": "buffer"},
   {"name": "moe.gate", "dtype": "F32", "shape": [8, 3]},
   {"name": "moe.expert_bias", "dtype": "F32", "shape": [8], "built_real": true, "init": "zeros",
    "kind": "buffer"},
   {"name": "cache.mask", "dtype": "BOOL", "shape": [3, 3], "persistent": false, "init": "ones",
    "kind": "buffer"},
   {"name": "cache.table", "dtype": "F32", "shape": [1700], "persistent": false, "built_real": true,
    "kind": "buffer"},
   {"name": "rotary.inv_freq", "dtype": "F32", "shape": [16], "persistent": false,
    "rope": {"rope_type": "default", "rope_theta": 10000.0},
    "kind": "buffer"},
   {"name": "head.weight", "dtype": "F32", "shape": [13, 6]}],
  "ties": [["embed.weight", "head.weight"]],
  "missing": ["adapter.lora_a.weight", "adapter.lora_b.weight", "adapter.scale"],
  "unexpected": ["old.rotary_emb.inv_freq"],
  "files": 2
 },
 "mesh": [{"name": "dp_shard", "size": 4}],
 "resume_mesh": [{"name": "dp_shard", "size": 3}]
}
)json";

}  // namespace shardproof
