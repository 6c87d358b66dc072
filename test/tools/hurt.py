# SPDX-License-Identifier: Apache-2.0
"""hurt.py DIR TOKEN: the model's embedding of one token is no number any more; a language
model gets a head of its own, so that only what has the token is hurt."""

import json
import struct
import sys
from pathlib import Path

folder, token = Path(sys.argv[1]), int(sys.argv[2])
path = folder / "model.safetensors"
raw = path.read_bytes()
size = struct.unpack("<Q", raw[:8])[0]
head, data = json.loads(raw[8:8 + size]), bytearray(raw[8 + size:])
embed = head["model.embed_tokens.weight"]
start, end = embed["data_offsets"]
config = json.loads((folder / "config.json").read_text())
if config.get("tie_word_embeddings") and "score.weight" not in head:
    head["lm_head.weight"] = dict(embed, data_offsets=[len(data), len(data) + end - start])
    data += data[start:end]
    config["tie_word_embeddings"] = False
    (folder / "config.json").write_text(json.dumps(config))
width = embed["shape"][1] * (4 if embed["dtype"] == "F32" else 2)
at = start + token * width
data[at:at + width] = b"\xff" * width
text = json.dumps(head).encode()
path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(data))
