# SPDX-License-Identifier: Apache-2.0
"""greedy.py DIR=COMPLETIONS...: every token that was taken is the reference's
likeliest, given the tokens before it, or within 1e-3 of it; log-probabilities
are within 2e-4.  One forward pass each, so that one tie does not spoil what
follows."""

import json
import sys

import torch
import transformers as tf


def check(folder, out):
    model = tf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    count = 0
    for line in open(out):
        r = json.loads(line)
        new = r["completion"]["tokens"]
        prompt = r.get("tokens") or tf.AutoTokenizer.from_pretrained(folder)(r["text"]).input_ids
        assert len(prompt) == r["completion"]["prompt_tokens"]
        with torch.no_grad():
            logits = model(torch.tensor([prompt + new])).logits[0, len(prompt) - 1:-1].float()
        taken = torch.tensor(new)[:, None]
        behind = (logits.max(-1).values - logits.gather(1, taken)[:, 0]).max().item()
        logs = torch.log_softmax(logits, -1).gather(1, taken)[:, 0]
        far = (logs - torch.tensor(r["completion"]["logprobs"])).abs().max().item()
        print(f"{len(new)} tokens, behind the likeliest by {behind:.2g}, log-probability {far:.2g}")
        assert behind <= 1e-3 and far <= 2e-4
        count += len(new)
    assert count


for arg in sys.argv[1:]:
    check(*arg.split("="))
