# SPDX-License-Identifier: Apache-2.0
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x.mean(dim=1)

def get_inputs():
    return [torch.randn(16, 262144)]

def get_init_inputs():
    return []
