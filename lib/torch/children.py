# SPDX-License-Identifier: Apache-2.0
"""Which class plays which role."""
from catorch import calib, combine, crawl, hf, oracle, task, worker
from catorch import cuda as _  # noqa: F401  in a jail its file may be hidden


def recorder(*args):
    """Imported by Env.prepare, since no other role needs it."""
    from catorch import record
    return record.Recorder(*args)


ROLES = {
    "worker": worker.Worker,
    "eager": worker.Eager,
    "compile": worker.Compiled,
    "oracle": oracle.Oracle,
    "task": task.Task,
    "crawl": crawl.Crawl,
    "hf": hf.Hf,
    "combine": combine.Combine,
    "calib": calib.Calib,
    "record": recorder,
}
