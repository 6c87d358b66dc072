# SPDX-License-Identifier: Apache-2.0
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x.t().contiguous()

def get_inputs():
    return [torch.randn(2048, 2048)]

def get_init_inputs():
    return []
