# SPDX-License-Identifier: Apache-2.0
"""Rows of a Parquet file (stdin) as JSON, one a line (stdout).  Optional: needs pyarrow
or pandas, which nothing else here does."""
import io
import json
import sys

DATAERR, UNAVAILABLE = 65, 69


def table(raw):
    try:
        from pyarrow import parquet
    except ImportError:
        sys.stderr.write(f"{sys.executable} has no pyarrow (pip install pyarrow)")
        sys.exit(UNAVAILABLE)
    try:
        return parquet.ParquetFile(io.BytesIO(raw))
    except Exception as exc:
        sys.stderr.write(str(exc))
        sys.exit(DATAERR)


for batch in table(sys.stdin.buffer.read()).iter_batches(256):
    for row in batch.to_pylist():
        print(json.dumps(row, ensure_ascii=False, default=str, separators=(",", ":")))
