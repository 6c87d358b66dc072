# SPDX-License-Identifier: Apache-2.0
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return {"twice": 2 * x, "list": [3 * x]}

def get_inputs():
    return [torch.randn(512, 512)]

def get_init_inputs():
    return []
