# SPDX-License-Identifier: Apache-2.0
#
# awk -v tasks=DIR -v out=DIR -f expand.awk ATTACK: makes the workdir of an
# attack (README.md): what its file does not say is as in the task's own
# honest candidate.  @CACHE@ in it is $CA_CACHE, where the judge keeps things.

function close_section()
{
	if (name != "")
		close(out "/" name)
	name = ""
}

# Sections of Python are kept, files are written as they come.
function line(text)
{
	if (section in code)
		code[section] = code[section] text "\n"
	else if (name != "")
		print text > (out "/" name)
}

function begin(title)
{
	close_section()
	section = title
	if (title in code) {
		code[title] = ""
		return
	}
	if (title ~ /^kernels\// && !theirs)
		kernels = 1
	if (theirs && ((title ~ /^kernels\// && kernels) || title in files))
		return
	files[title] = 1
	name = title
	if (name ~ /\//)
		system("mkdir -p '" out "/" substr(name, 1, match(name, /\/[^\/]*$/) - 1) "'")
	printf "" > (out "/" name)
}

function indent(text, by)
{
	gsub(/\n/, "\n" by, text)
	sub(by "$", "", text)
	return text == "" ? "" : by text
}

BEGIN {
	code["before"] = code["init"] = code["forward"] = ""
	section = name = ""
	system("mkdir -p '" out "'")
}

/^=== / { begin(substr($0, 5)); next }
section == "" { if (sub(/^task: /, "")) task = $0; next }
{
	gsub(/@CACHE@/, ENVIRON["CA_CACHE"])
	line($0)
}

END {
	close_section()
	theirs = 1
	for (s in code)
		mine[s] = code[s]
	while ((getline text < (tasks "/" task ".new")) > 0)
		if (sub(/^=== /, "", text))
			begin(text)
		else
			line(text)
	close_section()
	while ((getline text < (tasks "/" task ".py")) > 0) {
		print text > (out "/model.py")
		if (sub(/^    def forward\(self, /, "", text))
			args = substr(text, 1, length(text) - 2)
	}
	if ("model_new.py" in files)
		exit
	for (s in mine)
		if (mine[s] != "")
			code[s] = mine[s]
	file = out "/model_new.py"
	print "import ctypes, os, sys, threading, time\nimport torch" > file
	print "import cuda_extension as ext" > file
	printf "%s", code["before"] > file
	print "class ModelNew(torch.nn.Module):" > file
	print "    def __init__(self, *args):\n        super().__init__()" > file
	printf "%s", indent(code["init"], "        ") > file
	print "    def forward(self, " args "):" > file
	printf "%s", indent(code["forward"], "        ") > file
}
