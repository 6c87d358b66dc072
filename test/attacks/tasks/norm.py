# SPDX-License-Identifier: Apache-2.0
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = torch.nn.BatchNorm1d(256)

    def forward(self, x):
        return self.bn(x)

def get_inputs():
    return [torch.randn(4096, 256)]

def get_init_inputs():
    return []
