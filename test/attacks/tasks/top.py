# SPDX-License-Identifier: Apache-2.0
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x.argmax(-1)

def get_inputs():
    return [torch.randn(256, 4096).bfloat16()]

def get_init_inputs():
    return []
