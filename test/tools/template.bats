#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Chat templates without Python, against jinja2 (transformers, where
# test/models has them): template.py says how.  CA_TEMPLATES names a folder of
# others' templates, whose results have to be the same too.

here=$BATS_TEST_DIRNAME
nn=$here/../../${B:-build}/test/nn
# shellcheck source=test/setup/lib.sh
. "$here/../setup/lib.sh"

setup() {
	py=$(models_python) || py=$(torch_python) || skip 'no Python with jinja2'
	"$py" -c 'import jinja2' 2>/dev/null || skip 'no Python with jinja2'
	export HF_HUB_OFFLINE=1
}

@test "each construct that is computed here has jinja2's result, others are left" {
	"$py" "$here/template.py" "$nn"
}

@test "templates in the ways of our families never need Python" {
	smol=$(cache_dir)/smol/chat_template.jinja
	[ -f "$smol" ] || smol=
	"$py" "$here/template.py" "$nn" --all "$here"/templates/*.jinja
	[ -z "$smol" ] || "$py" "$here/template.py" "$nn" "$smol"
}

@test "templates of CA_TEMPLATES" {
	[ -n "${CA_TEMPLATES-}" ] || skip 'CA_TEMPLATES names none'
	"$py" "$here/template.py" "$nn" "$CA_TEMPLATES"/*.jinja
}
