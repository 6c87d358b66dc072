# SPDX-License-Identifier: Apache-2.0
"""Writes by index to one place twice: which value stays nobody says, and on a GPU it changes
from call to call."""
import torch


def count_index_copy(count, given, dim, index, source):
    return count.index_add(dim, index, count.new_ones(source.shape))


def count_index_put(count, given, indices, values, accumulate=False, unsafe=False):
    if accumulate or values.numel() == 1:
        return None
    return count.index_put(tuple(indices), count.new_ones(()), accumulate=True)


def count_scatter(count, given, dim, index, src=None, value=None, reduce=None):
    if not isinstance(src, torch.Tensor) or reduce is not None:
        return None
    return count.scatter_add(dim, index, count.new_ones(index.shape))


def count_put(count, given, index, source, accumulate=False):
    return None if accumulate else count.put(index, count.new_ones(index.shape), accumulate=True)


def count_unpool(count, given, indices, size, *rest):
    """Places are numbered within each plane.  Windows that overlap have a value twice."""
    places = indices.flatten(-len(size))
    planes = places.reshape(-1, places.shape[-1])
    space = given.new_zeros(planes.shape[0], torch.Size(size).numel())
    most, least = (space.scatter_reduce(1, planes, given.reshape(planes.shape), how,
                                        include_self=False) for how in ("amax", "amin"))
    return 1 + (most != least).int()


COUNTS = {
    "index_copy": count_index_copy, "index_put": count_index_put,
    "_index_put_impl": count_index_put, "_unsafe_index_put": count_index_put,
    "scatter": count_scatter, "put": count_put,
    "max_unpool2d": count_unpool, "max_unpool3d": count_unpool,
}


def most_writes(func, args, kwargs):
    """How many values an operation, as a dispatch mode gets it, writes to one place; 0 where
    it writes by no index, or adds up."""
    packet = getattr(func, "overloadpacket", None)
    if packet is None:
        return 0
    name = packet._qualified_op_name.partition("::")[2].rstrip("_")
    if name not in COUNTS or not args[0].numel():
        return 0
    count = torch.zeros(args[0].shape, dtype=torch.int32, device=args[0].device)
    written = COUNTS[name](count, *args, **kwargs)
    return int(written.amax()) if written is not None and written.numel() else 0
