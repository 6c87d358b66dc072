# SPDX-License-Identifier: Apache-2.0
"""Which class plays which role."""
from catorch import calib, oracle, task, worker
from catorch import cuda as _  # noqa: F401  in a jail its file may be hidden

ROLES = {
    "worker": worker.Worker,
    "eager": worker.Eager,
    "compile": worker.Compiled,
    "oracle": oracle.Oracle,
    "task": task.Task,
    "calib": calib.Calib,
}
