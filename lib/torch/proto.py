# SPDX-License-Identifier: Apache-2.0
"""Twins of the structures in proto.h, and the codes in them."""
import struct

PROTO = 6
REQ_MAX = 60000
LEAVES = 64
NDIM = 12
SLOTS = 64
TEXT = 2048
GAP = 512

TAKEN = b"taken"
MAGIC_GO = 0x6F676163
MAGIC_MSG = 0x736D6163

DTYPES = (
    None, "bool", "uint8", "int8", "int16", "int32", "int64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
    "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2",
)

LEAF_TENSOR, LEAF_INT, LEAF_FLOAT, LEAF_BOOL, LEAF_NONE, LEAF_STR = range(1, 7)

GO_FIRST = 1
GO_SYNC = 2

(END_OK, END_SYNTAX, END_NO_CLASS, END_CONSTRUCT, END_PARAM_MISMATCH, END_RAISED,
 END_OOM, END_UNSUPPORTED, END_POOL, END_BAD_REQUEST, END_JAIL) = range(11)

(PHASE_LOAD, PHASE_CONSTRUCT, PHASE_STATE, PHASE_INPUTS, PHASE_FORWARD,
 PHASE_RESULT) = range(1, 7)

SLOT = struct.Struct("<QQ")
GO = struct.Struct("<IIQQII")
HEAD = struct.Struct("<IIQQQQQQIIII32s")
LEAF = struct.Struct("<IIIIQQQQ12q")
TEXT_AT = HEAD.size + LEAVES * LEAF.size
MSG_SIZE = TEXT_AT + TEXT

assert HEAD.size == 104 and LEAF.size == 144 and MSG_SIZE == 104 + 9216 + 2048
