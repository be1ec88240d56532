"""Short names of dtypes, as records and logs write them: f32, i64, b8."""

from __future__ import annotations

import torch

__all__ = ["short_dtype"]

_SHORT = {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.complex32: "c32",
    torch.complex64: "c64",
    torch.complex128: "c128",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.bool: "b8",
}


def short_dtype(dtype: torch.dtype) -> str:
    """Give 'f32' for torch.float32, and torch's own name for a dtype without a short one."""
    return _SHORT.get(dtype) or str(dtype).removeprefix("torch.")
