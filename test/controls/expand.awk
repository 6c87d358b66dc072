# SPDX-License-Identifier: Apache-2.0
#
# awk -v out=DIR -f expand.awk CONTROL: the workdir that a control (README.md)
# stands for.

function begin(path)
{
	if (file != "")
		close(file)
	file = out "/" path
	if (match(path, /\/[^\/]*$/))
		system("mkdir -p '" out "/" substr(path, 1, RSTART) "'")
	printf "" > file
}

function class(path, name)
{
	begin(path)
	print "import math\nimport torch\nimport torch.nn as nn" > file
	print "import torch.nn.functional as F" > file
	if (native && name == "ModelNew")
		print "import cuda_extension as ext" > file
	print "def get_inputs():\n    return " inputs > file
	print "def get_init_inputs():\n    return " (init == "" ? "[]" : init) > file
	print "class " name "(nn.Module):" > file
}

BEGIN { native = 1 }
file == "" && sub(/^inputs: /, "") { inputs = $0; next }
file == "" && sub(/^init: /, "") { init = $0; next }
file == "" && /^native: no$/ { native = 0; next }
/^=== model$/ { class("model.py", "Model"); next }
/^=== new$/ { class("model_new.py", "ModelNew"); next }
/^=== / { begin(substr($0, 5)); next }
file != "" { print > file }
