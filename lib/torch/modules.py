# SPDX-License-Identifier: Apache-2.0
"""torch.nn's modules with arguments as models have them (torch's own samples have four
channels): name, constructor's arguments, shapes of the inputs.  B is the batch, which grows
until a call takes as long as it should; `int:N` marks indices below N, other words are kinds
of pieces.py."""

ACTIVATIONS = (
    "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh",
    "LeakyReLU", "LogSigmoid", "Mish", "PReLU", "ReLU", "ReLU6", "RReLU", "SELU", "SiLU",
    "Sigmoid", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink",
)
PAIRED = ("L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss")

ROWS = """
Linear | 768, 1024 | B,24,768
Bilinear | 96, 80, 64 | B,96; B,80
Embedding | 8192, 384 | B,48 int:8192
EmbeddingBag | 8192, 384 | B,24 int:8192
Conv1d | 48, 96, 5, padding=2 | B,48,1000
Conv2d | 24, 56, 3, padding=1 | B,24,60,60
Conv2d | 40, 72, 1 | B,40,60,60
Conv3d | 12, 20, 3, padding=1 | B,12,14,28,28
ConvTranspose1d | 48, 40, 4, stride=2, padding=1 | B,48,500
ConvTranspose2d | 40, 20, 4, stride=2, padding=1 | B,40,30,30
ConvTranspose3d | 16, 10, 2, stride=2 | B,16,7,14,14
BatchNorm1d | 200, track_running_stats=False | B,200
BatchNorm2d | 40, track_running_stats=False | B,40,60,60
BatchNorm3d | 20, track_running_stats=False | B,20,7,28,28
InstanceNorm1d | 40, affine=True | B,40,500
InstanceNorm2d | 40, affine=True | B,40,60,60
InstanceNorm3d | 20, affine=True | B,20,7,28,28
GroupNorm | 8, 72 | B,72,28,28
LayerNorm | 768 | B,24,768
RMSNorm | 768 | B,24,768
LocalResponseNorm | 5, alpha=0.5 | B,40,30,30
CrossMapLRN2d | 5, alpha=0.5 | B,40,30,30
MaxPool1d | 3, stride=2 | B,40,1000
MaxPool2d | 3, stride=2 | B,40,60,60
MaxPool3d | 2 | B,20,14,28,28
AvgPool1d | 3, stride=2 | B,40,1000
AvgPool2d | 3, stride=2, padding=1 | B,40,60,60
AvgPool3d | 2 | B,20,14,28,28
LPPool1d | 2, 3, stride=2 | B,40,1000
LPPool2d | 2, 3, stride=2 | B,40,60,60
LPPool3d | 2, 2 | B,20,14,28,28
AdaptiveAvgPool1d | 24 | B,40,1000
AdaptiveAvgPool2d | (7, 7) | B,40,60,60
AdaptiveAvgPool3d | (4, 7, 7) | B,20,14,28,28
AdaptiveMaxPool1d | 24 | B,40,1000
AdaptiveMaxPool2d | (7, 7) | B,40,60,60
AdaptiveMaxPool3d | (4, 7, 7) | B,20,14,28,28
ReflectionPad1d | 3 | B,40,1000
ReflectionPad2d | 3 | B,40,60,60
ReflectionPad3d | 2 | B,20,7,28,28
ReplicationPad1d | 3 | B,40,1000
ReplicationPad2d | 3 | B,40,60,60
ReplicationPad3d | 2 | B,20,7,28,28
ZeroPad1d | 3 | B,40,1000
ZeroPad2d | 3 | B,40,60,60
ZeroPad3d | 2 | B,20,7,28,28
ConstantPad1d | 3, 1.5 | B,40,1000
ConstantPad2d | 3, 1.5 | B,40,60,60
ConstantPad3d | 2, 1.5 | B,20,7,28,28
CircularPad1d | 3 | B,40,1000
CircularPad2d | 3 | B,40,60,60
CircularPad3d | 2 | B,20,7,28,28
Upsample | scale_factor=2, mode='bilinear' | B,24,30,30
UpsamplingNearest2d | scale_factor=2 | B,24,30,30
UpsamplingBilinear2d | scale_factor=2 | B,24,30,30
PixelShuffle | 2 | B,64,30,30
PixelUnshuffle | 2 | B,24,60,60
ChannelShuffle | 4 | B,64,30,30
Unfold | 3, padding=1 | B,12,30,30
Fold | (30, 30), 3, padding=1 | B,108,900
Flatten | 1, 2 | B,24,30,30
Unflatten | 1, (4, 6) | B,24,30
Softmax | -1 | B,48
Softmin | -1 | B,48
LogSoftmax | -1 | B,1000
Softmax2d | | B,24,30,30
Threshold | 0.2, -1.0 | B,1000
AdaptiveLogSoftmaxWithLoss | 96, 1000, cutoffs=[100, 400] | B,96; B int:1000
CosineSimilarity | 1 | B,24; B,24
PairwiseDistance | 2 | B,24; B,24
LSTM | 96, 128, batch_first=True | B,20,96
GRU | 96, 128, batch_first=True | B,20,96
RNN | 96, 128, batch_first=True | B,20,96
LSTMCell | 192, 256 | B,192
GRUCell | 192, 256 | B,192
RNNCell | 192, 256 | B,192
MultiheadAttention | 192, 6, batch_first=True | B,48,192; B,48,192; B,48,192
TransformerEncoderLayer | 192, 6, 512, batch_first=True | B,48,192
TransformerDecoderLayer | 192, 6, 512, batch_first=True | B,24,192; B,48,192
CrossEntropyLoss | reduction='none' | B,1000; B int:1000
NLLLoss | reduction='none' | B,1000 logprob; B int:1000
KLDivLoss | reduction='none' | B,48 logprob; B,48 prob
BCELoss | reduction='none' | B,1000 rand; B,1000 rand
BCEWithLogitsLoss | reduction='none' | B,1000; B,1000 label
GaussianNLLLoss | reduction='none' | B,1000; B,1000; B,1000 rand
HingeEmbeddingLoss | reduction='none' | B,1000; B,1000 sign
MultiLabelSoftMarginLoss | reduction='none' | B,1000; B,1000 label
MultiMarginLoss | reduction='none' | B,500; B int:500
TripletMarginLoss | reduction='none' | B,500; B,500; B,500
CosineEmbeddingLoss | reduction='none' | B,500; B,500; B sign
MarginRankingLoss | reduction='none' | B; B; B sign
PoissonNLLLoss | reduction='none' | B,1024; B,1024 count
SoftMarginLoss | reduction='none' | B,1024; B,1024 sign
""" + "".join(f"{name} | | B,1024\n" for name in ACTIVATIONS) + \
    "".join(f"{name} | reduction='none' | B,1024; B,1024\n" for name in PAIRED)


def rows():
    """(name, arguments, [(shape with "B", kind)])"""
    found = []
    for line in ROWS.strip().splitlines():
        name, args, inputs = (part.strip() for part in line.split("|"))
        specs = []
        for text in inputs.split(";"):
            shape, _, kind = text.strip().partition(" ")
            specs.append(([n if n == "B" else int(n) for n in shape.split(",")], kind))
        found.append((name, args, specs))
    return found
