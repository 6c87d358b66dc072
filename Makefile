# SPDX-License-Identifier: Apache-2.0
# GNU make, not recursive.  Sources are found, not listed: lib/MODULE/*.c make
# one library, tools/NAME.c one program each, test/lib/NAME_test.c one test.
PREFIX ?= /usr/local
CC = gcc
CXX = g++
CSTD = -std=c11 -D_POSIX_C_SOURCE=200809L
WARN = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	-Wpointer-arith -Wwrite-strings -Wvla -Wformat=2
CFLAGS ?= -O2 -g
# Where objects and programs go; `make check` builds variants elsewhere.
B ?= build
BIN ?= bin
FUZZ_SECONDS ?= 10
VERSION := $(shell cat VERSION)
say = $(if $(V)$(findstring s,$(firstword -$(MAKEFLAGS))),,@echo "  $@";)# V=1: all
ALL_CFLAGS = $(CSTD) $(WARN) -fPIC -Ilib -MMD -MP $(CFLAGS)
LIBS = -Wl,--as-needed -lcjson -lcurl -lmd -lseccomp -lelf -lonig -lutf8proc \
	-lmicrohttpd -lm -ldl -lpthread $(openmp)

lib_src := $(wildcard lib/*/*.c)
# Operations on the CPU, once for each level of its instructions.
cpu_src := $(wildcard lib/gpu/cpu/*.c)
cpu_levels := 1 $(if $(filter x86_64,$(shell uname -m)),3 4)
lib_obj := $(lib_src:%.c=$B/%.o) \
	$(foreach l,$(cpu_levels),$(cpu_src:%.c=$B/level$l/%.o))
tools := $(patsubst tools/%.c,%,$(wildcard tools/ca-*.c))
tests := $(patsubst test/lib/%.c,%,$(wildcard test/lib/*_test.c))

# What the goals need beyond a compiler and the libraries.
need_more := $(filter deps demo test test-% bench bench-% check,$(MAKECMDGOALS))
need := build $(if $(need_more),run torch test) \
	$(if $(filter lint check,$(MAKECMDGOALS)),check)

all: deps $(tools:%=$(BIN)/%) $(BIN)/libca-child.so \
	$(BIN)/nvrtc-child $(BIN)/agent-client

# Fast when nothing is missing, so everything that compiles waits for it.
deps:
	@CC='$(CC)' CXX='$(CXX)' test/setup/deps.sh $(need)

$B/%.o: %.c | deps
	@mkdir -p $(@D)
	$(say)$(CC) $(ALL_CFLAGS) -c -o $@ $<

$B/lib/base/version.o: ALL_CFLAGS += -DCA_VERSION='"$(VERSION)"'
$B/lib/base/version.o: VERSION
# The range of torch that the tools accept.
tested := $(shell sed -n 's/^\# tested: torch//p' lib/torch/requirements.txt)
$B/lib/base/python.o: ALL_CFLAGS += -DCA_TORCH_LOW='"$(firstword $(tested))"' \
	-DCA_TORCH_HIGH='"$(lastword $(tested))"'
$B/lib/base/python.o: lib/torch/requirements.txt
# Loops over every captured element: worth the vectoriser.
$B/lib/ast/match.o: ALL_CFLAGS += -O3
$B/lib/judge/compare_block.o: ALL_CFLAGS += -O3 -fopenmp-simd -fno-trapping-math

# clang's OpenMP would need a runtime of its own: there it runs serially.
openmp := $(if $(findstring clang,$(CC)),-fopenmp-simd,-fopenmp)
cpu_flags = -O3 -ffp-contract=fast -fno-math-errno -fno-trapping-math $(openmp)
$B/test/lib/witness_test.o: ALL_CFLAGS += $(openmp)
march3 := -march=x86-64-v3
march4 := -march=x86-64-v4 -mprefer-vector-width=512
define level
$B/level$(1)/%.o: %.c | deps
	@mkdir -p $$(@D)
	$$(say)$$(CC) $$(ALL_CFLAGS) -DCPU_LEVEL=$(1) $$(cpu_flags) $$(march$(1)) \
		-c -o $$@ $$<
endef
$(foreach l,$(cpu_levels),$(eval $(call level,$l)))

# Texts that NVRTC compiles at run time, as bytes in the library.
define text
$B/gen/%.inc: lib/$(1)/%
	@mkdir -p $$(@D)
	$$(say)od -An -v -tu1 $$< | sed 's/[0-9][0-9]*/&,/g' >$$@
endef
$(foreach d,judge gpu/cuda,$(eval $(call text,$d)))

cuda_texts := cuda_kernels.cu cuda_move.h cuda_cmp.h compare_elem.h
$B/lib/judge/cuda_source.o: $(cuda_texts:%=$B/gen/%.inc)
$B/lib/gpu/cuda_text.o: \
	$(patsubst lib/gpu/cuda/%,$B/gen/%.inc,$(wildcard lib/gpu/cuda/*))
$B/lib/judge/cuda_source.o $B/lib/gpu/cuda_text.o: ALL_CFLAGS += -I$B/gen

# What the torch host and its children load with ctypes: the jail of forked
# processes, and what CUDA children need.
child_obj := $(patsubst %.c,$B/%.o,$(wildcard lib/cu/child/*.c)) \
	$B/lib/jail/self.o $B/lib/jail/seal.o
$(BIN)/libca-child.so: $(child_obj) $B/libca.a
	@mkdir -p $(@D)
	$(say)$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,-z,defs,--as-needed -o $@ $^ $(LIBS)

# Runs NVRTC inside a jail, whose limit on addresses no sanitizer would bear.
$(BIN)/nvrtc-child: lib/build/child/nvrtc.c lib/cu/builtins.h | deps
	@mkdir -p $(@D)
	$(say)$(CC) $(CSTD) $(WARN) -Ilib -O2 -o $@ $< -ldl

# What the judge's commands are inside a rollout's jail.
$(BIN)/agent-client: lib/agent/child/client.c | deps
	@mkdir -p $(@D)
	$(say)$(CC) $(CSTD) $(WARN) -O2 -o $@ $<

$B/libca.a: $(lib_obj)
	@rm -f $@
	$(say)ar rcs $@ $^

$(BIN)/ca-%: $B/tools/ca-%.o $B/libca.a
	@mkdir -p $(@D)
	$(say)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $B/libca.a $(LIBS)

$B/test/%_test: $B/test/lib/%_test.o $B/libca.a
	@mkdir -p $(@D)
	$(say)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $B/libca.a $(LIBS) -lcmocka

# Programs for a machine with a GPU; built everywhere, since they would rot.
gpu_progs := $(patsubst test/gpu/%.c,$B/test/gpu/%,\
	$(wildcard test/gpu/*_test.c test/gpu/*_bench.c))
$(gpu_progs): $B/test/gpu/%: $B/test/gpu/%.o $B/test/gpu/peer.o $B/libca.a
	$(say)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $B/libca.a $(LIBS) \
		-lcmocka

# Harnesses of test/fuzz/run.sh, which calls this with clang.
$B/test/fuzz_%: $B/test/fuzz/%_fuzz.o $B/libca.a
	$(say)$(CC) $(CFLAGS) -fsanitize=fuzzer -o $@ $< $B/libca.a $(LIBS)

# Programs that suites of test/tools use.
helpers := $(patsubst test/tools/%.c,$B/test/%,$(wildcard test/tools/*.c))
$(helpers): $B/test/%: $B/test/tools/%.o $B/libca.a
	$(say)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

test-bins: $(tests:%=$B/test/%) $(helpers) $(gpu_progs)

help: ; @sed -n 's/^    \(make\|test\/\|\.ci\)/\1/p' HACKING.md

demo: all
	@pipelines/demo.sh

test: all test-bins
	@B=$B BIN=$(BIN) test/run.sh lib contract tools pipelines attacks models

test-lib: test-bins
	@B=$B BIN=$(BIN) test/run.sh lib

test-gpu: all test-bins
	@B=$B BIN=$(BIN) test/run.sh gpu

# All of test/attacks, and that each is paid where its defence is missing.
test-attacks: all
	@CA_BIN=$(BIN) test/attacks/run.sh cpu
	@CA_BIN=$(BIN) test/attacks/run.sh -r strict cpu
	@CA_BIN=$(BIN) test/attacks/run.sh -r kernelbench cpu
	@test/attacks/run.sh -w cpu

# The agent at length: killed at every write, five tasks solved and graded in
# full, a real model if CA_AGENT_MODEL names one (test/agent/model.bats).
test-agent: all
	@CA_BIN=$(CURDIR)/$(BIN) CA_KILL_STEP=1 BATS_TEST_TIMEOUT=3600 \
		bats -f 'killed at any write' test/tools/agent-resume.bats
	@B=$B BIN=$(BIN) test/run.sh agent

# Trainings that are killed 20 times each and have to end with the same bits.
test-kill: all
	@kills=20 CA_BIN=$(CURDIR)/$(BIN) bats -f 'same training' \
		test/tools/ca-rft.bats test/tools/ca-vpretrain.bats \
		test/tools/ca-ppo.bats

# Ten thousand requests by a thousand clients at once: nothing may be lost.
test-load: all
	@CA_BIN=$(BIN) test/load/run.sh && B=$B BIN=$(BIN) test/run.sh load

# A short run of every harness; 77 is "cannot here", said by the script.
fuzz:
	@test/fuzz/run.sh $(FUZZ_SECONDS) || [ $$? = 77 ]

check: all
	@test/check.sh lint build

lint: all
	@test/check.sh lint

bench: all
	@test/bench/stages.sh cpu
	@test/bench/json.sh

bench-gpu: all test-bins
	@for b in bracket_bench row_bench 'attn_bench time'; do $B/test/gpu/$$b || exit; done
	@test/bench/clock.sh && test/bench/stages.sh cuda
	@[ -z "$${CUDA_AGENT_WORKDIR-}" ] || test/bench/try.sh
	@[ -z "$${KERNELBENCH-}" ] || \
		test/bench/kernelbench.sh "$${CUDA_L1_PAIRS:?}"
	@B=$B test/bench/engine.sh cuda
	@B=$B CA_BIN=$(BIN) test/bench/serve.sh cuda

# What the worked examples of the skills gain, on the device $(DEVICE).
bench-examples: all
	@test/bench/examples.sh $(DEVICE)

# What ca-agent costs beside model and tools, at 100 and at 1,000 rollouts.
bench-agent: all
	@test/bench/agent.sh 100 1 20
	@test/bench/agent.sh 1000 20 10

# What `make install` puts below PREFIX and `make uninstall` removes.  The
# programs write their completions themselves.
torch_files := $(wildcard lib/torch/*.py lib/torch/*.cpp lib/torch/*.inc \
	lib/torch/*.txt lib/torch/zone.h) \
	$(wildcard $(foreach d,* */* */*/* */*/*/*,lib/torch/slim/$d.h*))
skill_files := $(shell find -L skills -type f)
pipeline_files := $(filter-out %/demo.sh %/demo-learn.sh pipelines/learn/%, \
	$(shell find pipelines -type f))
manuals := $(wildcard man/*.[157])
installed = $(tools:%=bin/%) lib/cuda-agent/libca-child.so \
	lib/cuda-agent/nvrtc-child lib/cuda-agent/agent-client \
	$(torch_files:lib/%=lib/cuda-agent/%) \
	$(addprefix lib/cuda-agent/,$(skill_files) $(pipeline_files)) \
	$(foreach m,$(manuals),share/man/man$(subst .,,$(suffix $m))/$(notdir $m)) \
	$(tools:%=share/bash-completion/completions/%)
root = $(DESTDIR)$(PREFIX)

$(root)/bin/%: $(BIN)/%
	install -D -m 755 $< $@
$(root)/lib/cuda-agent/%: $(BIN)/%
	install -D -m 755 $< $@
$(root)/lib/cuda-agent/%: lib/%
	install -D -m 644 $< $@
$(root)/lib/cuda-agent/%: %
	install -D -m $(if $(filter pipelines/%.sh,$<),755,644) $< $@
$(root)/share/bash-completion/completions/%: $(BIN)/%
	@mkdir -p $(@D)
	$< --completion=bash >$@
define manual
$(root)/share/man/man$(1)/%: man/%
	install -D -m 644 $$< $$@
endef
$(foreach n,1 5 7,$(eval $(call manual,$n)))

install: $(installed:%=$(root)/%)

uninstall:
	rm -f $(installed:%=$(root)/%)
	-cd $(root)/lib && find cuda-agent -depth -type d -empty -delete

clean:
	rm -rf bin $B

.PHONY: all deps help demo fuzz test test-bins test-lib test-gpu test-agent test-kill \
	test-load check lint bench bench-gpu bench-examples bench-agent install \
	uninstall clean
.SECONDARY:
-include $(shell find $B -name '*.d' 2>/dev/null)
