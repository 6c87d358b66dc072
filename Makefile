# SPDX-License-Identifier: Apache-2.0
# GNU make, not recursive.  Sources are found, not listed: lib/MODULE/*.c make
# one library, tools/NAME.c one program each, test/lib/NAME_test.c one test.
PREFIX ?= /usr/local
CC = gcc
CSTD = -std=c11 -D_POSIX_C_SOURCE=200809L
WARN = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	-Wpointer-arith -Wwrite-strings -Wvla -Wformat=2
CFLAGS ?= -O2 -g
B ?= build
VERSION := $(shell cat VERSION)
ALL_CFLAGS = $(CSTD) $(WARN) -fPIC -Ilib -MMD -MP $(CFLAGS)
LIBS = -lcjson -lmd -lseccomp -lelf -lm -ldl -lpthread

lib_src := $(wildcard lib/*/*.c)
lib_obj := $(lib_src:%.c=$B/%.o)
tools := $(patsubst tools/%.c,%,$(wildcard tools/ca-*.c))
tests := $(patsubst test/lib/%.c,%,$(wildcard test/lib/*_test.c))

all: $(tools:%=bin/%)

$B/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -c -o $@ $<

$B/lib/base/version.o: ALL_CFLAGS += -DCA_VERSION='"$(VERSION)"'
$B/lib/base/version.o: VERSION

$B/libca.a: $(lib_obj)
	@rm -f $@
	ar rcs $@ $^

bin/ca-%: $B/tools/ca-%.o $B/libca.a
	@mkdir -p bin
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $B/libca.a $(LIBS)

$B/test/%_test: $B/test/lib/%_test.o $B/libca.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< $B/libca.a $(LIBS) -lcmocka

test-lib: $(tests:%=$B/test/%)
	CMOCKA_MESSAGE_OUTPUT=TAP prove -e '' $(tests:%=$B/test/%)

clean:
	rm -rf bin $B

.PHONY: all clean test-lib
.SECONDARY:
-include $(shell find $B -name '*.d' 2>/dev/null)
