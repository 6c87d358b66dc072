# SPDX-License-Identifier: Apache-2.0
#
# jq -nc -f tasks.jq: a family of small tasks, each with the C that it wants: two
# operations on every element, in half of them summed over rows.  {task, held, c, rows}.  The
# first sixteen that are not held have every operation in them.
def ops: [
	{py: "torch.relu(A)", c: "fmaxf(A, 0.0f)"}, {py: "torch.abs(A)", c: "fabsf(A)"},
	{py: "torch.tanh(A)", c: "tanhf(A)"}, {py: "torch.sigmoid(A)", c: "1.0f / (1.0f + expf(-(A)))"},
	{py: "torch.sqrt(torch.abs(A))", c: "sqrtf(fabsf(A))"}, {py: "torch.sin(A)", c: "sinf(A)"},
	{py: "torch.exp(-torch.abs(A))", c: "expf(-fabsf(A))"}, {py: "torch.clamp(A, -1.0, 1.0)",
	 c: "fminf(fmaxf(A, -1.0f), 1.0f)"}];
def affine: [{py: "(x * 2.0)", c: "(v * 2.0f)"}, {py: "(x + 0.5)", c: "(v + 0.5f)"},
	{py: "(x * 0.5 - 1.0)", c: "(v * 0.5f - 1.0f)"}];
def code($body): "import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return \($body)


def get_inputs():
    return [torch.randn(4096, 2048)]


def get_init_inputs():
    return []
";
[range(affine | length) as $j | range(ops | length) as $i | range(2) as $rows |
	(ops[$i].py | sub("A"; affine[$j].py)) as $py |
	{rows: ($rows == 1), c: (ops[$i].c | sub("A"; affine[$j].c)),
	 held: (($i + $j + $rows) % 4 == 3),
	 task: {kind: "task", v: 1, code: code($py + (if $rows == 1 then ".sum(dim=1)" else "" end))}}][]
