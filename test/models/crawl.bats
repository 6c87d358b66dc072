#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# ca-crawl transformers: layers that run without transformers.

bats_require_minimum_version 1.5.0

load models

setup() {
	load models
	need_models
	cd "$BATS_TEST_TMPDIR" || return
}

@test "a layer of transformers becomes a file of its own, causal, and no less" {
	run -65 --separate-stderr env CA_PYTHON="$py" "$bin/ca-crawl" --device cpu \
		--ms 0.05 --only dia.DiaEncoderLayer --min-yield 2 \
		--summary summary -o out transformers
	[[ $stderr == *"'transformers' yields 1 tasks, fewer than 2"* ]]
	[ "$(jq -c '[.source.name, .source.ref, .pieces]' out)" = \
		'["transformers","dia.DiaEncoderLayer",null]' ]
	jq -e '.source.version != null' out
	jq -e '.made == 1 and .skipped == 0' summary
	jq -r .code out >model.py
	[ "$(grep -c transformers model.py)" = 0 ]
	cat >check.py <<-'END'
		import sys
		sys.modules["transformers"] = None
		import torch
		space = {}
		exec(open("model.py").read(), space)
		model, (x, *rest) = space["Model"]().eval(), space["get_inputs"]()
		with torch.no_grad():
		    first = model(x, *rest)
		    x[:, 100:] = 0
		    second = model(x, *rest)
		assert torch.equal(first[:, :100], second[:, :100])
		assert not torch.equal(first, second)
	END
	"$py" check.py
	CA_PYTHON=$py "$bin/ca-filter" --device cpu --min-ms 0 \
		--checks contract,trace,eager,random,trivial out >judged
	jq -c '[.filter.reason, .filter.text]' judged
	[ "$(jq -c .keep judged)" = true ]
	# ca-combine passes it as it came.
	CA_PYTHON=$py "$bin/ca-combine" -q --device cpu --count 1 --mix transformers=1 \
		out >passed
	cmp out passed
}

@test "activations that files carry are those of transformers" {
	cat >check.py <<-'END'
		import sys, types
		package = types.ModuleType("catorch")
		package.__path__ = [sys.argv[1] + "/lib/torch"]
		sys.modules["catorch"] = package
		import torch
		import torch.nn as nn
		import torch.nn.functional as F
		from catorch.extract import STAND_INS
		from transformers.activations import ACT2CLS, ACT2FN as theirs
		exec(STAND_INS["ACT2FN"])
		x = torch.randn(1000) * 8
		for name in ACT2CLS:
		    if name not in ("prelu", "xielu"):      # have weights
		        torch.testing.assert_close(ACT2FN[name](x), theirs[name](x))
	END
	"$py" check.py "$top"
}
