"""What a field of a tensor has in a case that leaves it out.

Taken from fixtures/schema/case.schema.json, which is not part of the package; case_test.py holds
this against it.
"""

TENSOR = {
    "kind": "parameter",
    "persistent": True,
    "strides": [],
    "requires_grad": True,
    "attributes": {},
    "init": "uniform",
    "values": "normal",
    "built_real": False,
    "stored": [],
    "stored_as": 0,
}

ROPE = {
    "rope_theta": 10000.0,
    "dim": 0,
    "factor": 1.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": True,
    "short_factor": [],
    "rotated": 0,
}
