"""The names that safetensors, the Case and the evidence give to dtypes."""

import torch

DTYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16,
    "I32": torch.int32, "I64": torch.int64, "F16": torch.float16, "BF16": torch.bfloat16,
    "F32": torch.float32, "F64": torch.float64, "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2, "F8_E8M0": torch.float8_e8m0fnu, "U16": torch.uint16,
    "U32": torch.uint32, "U64": torch.uint64, "C64": torch.complex64,
}  # fmt: skip

NAMES = {dtype: name for name, dtype in DTYPES.items()}
