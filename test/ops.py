# SPDX-License-Identifier: Apache-2.0
"""ops.py DEVICE FILE K N: every Nth task of a file that is kept, from the Kth on, is run under
torch's profiler, which sees calls in C++ and knows nothing of what `ops` was derived by.  Each
operator that `ops` names was called, and each call that computes is named, or made by one that
is.  Exit 1 where that does not hold."""
import json
import sys

import torch
from torch.profiler import ProfilerActivity, profile

LISTED = 512                    # names; more are cut off
# What makes, moves and looks, but computes nothing.
MOVES = set("""
empty empty_like empty_strided empty_permuted new_empty new_empty_strided zeros zeros_like
new_zeros ones ones_like new_ones full full_like new_full scalar_tensor arange fill zero copy
clone _to_copy to contiguous detach lift_fresh item _local_scalar_dense set resize resize_as
is_nonzero resolve_conj resolve_neg view reshape _unsafe_view _reshape_alias _reshape_copy
as_strided expand expand_as permute transpose t numpy_T unsqueeze squeeze select slice narrow
unbind split split_with_sizes tensor_split chunk view_as view_as_real view_as_complex real imag
diagonal unfold movedim moveaxis swapaxes swapdims ravel flatten unflatten alias _conj _neg_view
conj result_type can_cast lift mT mH adjoint type_as broadcast_tensors broadcast_to atleast_1d
atleast_2d atleast_3d hsplit vsplit dsplit numel size stride meshgrid promote_types
_has_compatible_shallow_copy_type dropout feature_dropout alpha_dropout feature_alpha_dropout
cudnn_is_acceptable requires_grad _is_zerotensor
""".split())
# Where nobody looks one is called by the other's name.
EQUAL = {"max_pool1d": "max_pool2d_with_indices"}


def plain(name):
    """In-place ones are the same operators."""
    name = name.rstrip("_")
    return EQUAL.get(name, name)


def run(code, device):
    """The names of what was called, each with those that called it, outermost last."""
    space = {"__name__": "model"}
    with torch.device(device), torch.no_grad():
        exec(compile(code, "model.py", "exec"), space)
        given = space.get("get_init_inputs", list)()
        model = space["Model"](*given)
        if isinstance(model, torch.nn.Module):
            model = model.to(device).eval()
        args = space["get_inputs"]()
    with torch.no_grad():
        model(*args)
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            model(*args)
    calls = []
    for event in seen.events():
        if not event.name.startswith("aten::"):
            continue
        line, at = [], event
        while at is not None:
            if at.name.startswith("aten::"):
                line.append(plain(at.name[6:]))
            at = at.cpu_parent
        calls.append((line, any(c.name.startswith("aten::") for c in event.cpu_children)))
    return calls


def audit(task, device):
    """(what was not called, what was not named)."""
    named = {plain(name.rpartition(".")[2]) for name in task["ops"]}
    calls = run(task["code"], device)
    absent = named - {line[0] for line, _ in calls}
    # What moves may do so by calls that compute elsewhere.
    loose = {line[0] for line, calls_others in calls
             if not calls_others and not named & set(line) and not MOVES & set(line)}
    return sorted(absent), sorted(loose if len(task["ops"]) < LISTED else ())


def main(device, path, first, step):
    wrong = seen = 0
    with open(path, encoding="utf-8") as lines:
        for i, line in enumerate(lines):
            task = json.loads(line) if i % step == first else {}
            if task.get("kind") != "task" or not task.get("keep", True):
                continue
            seen += 1
            try:
                absent, loose = audit(task, device)
            except Exception as exc:
                absent, loose = [f"does not run: {exc!r:.200}"], []
            if absent or loose:
                wrong += 1
                print(f"{task['id']}: not called {absent}, not named {loose}", flush=True)
    print(f"{seen} tasks, {wrong} wrong")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
