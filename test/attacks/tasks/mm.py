# SPDX-License-Identifier: Apache-2.0
import torch

class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.relu(a @ b) + 1

def get_inputs():
    return [torch.randn(512, 512), torch.randn(512, 512)]

def get_init_inputs():
    return []
