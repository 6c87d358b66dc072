# SPDX-License-Identifier: Apache-2.0
#
# jq --unbuffered -c --slurpfile family FILE --arg device DEV --arg style fast|slow -f teacher.jq
#
# Answers ca-agent's requests as a model would that knows the tasks of tasks.jq: two files,
# ca-verify, done; without tools, the two in one answer.  In the style `slow` its kernels are right, but one thread does it all.
def head: "import cuda_extension\nimport torch\nimport torch.nn as nn\n\n\n" +
	"class ModelNew(nn.Module):\n    def forward(self, x):\n";
def cpu($c; $rows): "#include <math.h>\n#include <stdint.h>\n\n" + (if $rows then
	"void k(const float *x, float *y, int64_t n, int64_t m)\n{\n" +
	(if $style == "fast" then "#pragma omp parallel for\n" else "" end) +
	"\tfor (int64_t i = 0; i < n; i++) {\n\t\tfloat s = 0;\n\n" +
	"\t\tfor (int64_t j = 0; j < m; j++) {\n\t\t\tfloat v = x[i * m + j];\n\n" +
	"\t\t\ts += \($c);\n\t\t}\n\t\ty[i] = s;\n\t}\n}\n"
	else "void k(const float *x, float *y, int64_t n)\n{\n" +
	(if $style == "fast" then "#pragma omp parallel for simd\n" else "" end) +
	"\tfor (int64_t i = 0; i < n; i++) {\n\t\tfloat v = x[i];\n\n" +
	"\t\ty[i] = \($c);\n\t}\n}\n" end);
def cuda($c; $rows): "extern \"C\" __global__ void k(const float *x, float *y, int n" +
	(if $rows then ", int m)\n{\n\tfor (int i = blockIdx.x; i < n; i += gridDim.x) {\n" +
	"\t\tfloat s = 0;\n\n\t\tfor (int j = threadIdx.x; j < m; j += 32) {\n" +
	"\t\t\tfloat v = x[(long)i * m + j];\n\n\t\t\ts += \($c);\n\t\t}\n" +
	"\t\tfor (int d = 16; d; d /= 2)\n\t\t\ts += __shfl_xor_sync(~0u, s, d);\n" +
	"\t\tif (threadIdx.x == 0)\n\t\t\ty[i] = s;\n\t}\n}\n"
	else ")\n{\n\tint step = gridDim.x * blockDim.x;\n\n" +
	"\tfor (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {\n" +
	"\t\tfloat v = x[i];\n\n\t\ty[i] = \($c);\n\t}\n}\n" end);
def launch($rows): if $device == "cpu" then "" elif $style == "slow" then "[8, 32, 0]"
	elif $rows then "[4096, 32, 0]" else "[2048, 256, 0]" end;
def wrapper($rows): head + (if $rows then "        y = torch.empty(x.shape[0], device=x.device)\n" +
	"        cuda_extension.k\(launch($rows))(x, y, x.shape[0], x.shape[1])\n"
	else "        y = torch.empty_like(x)\n" +
	"        cuda_extension.k\(launch($rows))(x, y, x.numel())\n" end) + "        return y\n";
def write($path; $text): {name: "Write", args: {file_path: $path, content: $text}};

(.messages | map(select(.role == "assistant")) | length) as $n |
(.messages[] | select(.role == "user") | .content) as $asked |
first($family[] | select(.task.code as $code | $asked | contains($code))) as $t |
"kernels/k.\(if $device == "cpu" then "c" else "cu" end)" as $path |
(if $device == "cpu" then cpu($t.c; $t.rows) else cuda($t.c; $t.rows) end) as $kernel |
[write("/work/" + $path; $kernel), write("/work/model_new.py"; wrapper($t.rows)),
 {name: "Bash", args: {command: "ca-verify"}}][if .tools then $n else 3 end] as $call |
{choices: [{index: 0, finish_reason: (if $call then "tool_calls" else "stop" end),
	message: ({role: "assistant", content: (if $call then "" elif .tools then "Done." else
			"\($path)\n```\n\($kernel)```\n\nmodel_new.py\n```\n\(wrapper($t.rows))```" end)} +
		if $call then {tool_calls: [{id: "c\($n)", type: "function", function:
			{name: $call.name, arguments: ($call.args | tojson)}}]} else {} end)}],
 usage: {prompt_tokens: 1, completion_tokens: 1}}
