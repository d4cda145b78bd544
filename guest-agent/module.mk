# SPDX-License-Identifier: Apache-2.0
# The guest agent: one static binary against musl, built the same whatever the sanitizer. The
# kernel's headers come after musl's own.
AGENT_SOURCES := $(wildcard guest-agent/*.c) shared/agent_protocol.c shared/parse_number.c \
	shared/elf_stubs.c shared/elf_tables.c shared/read_file.c
AGENT_OBJECTS := $(AGENT_SOURCES:%.c=build/agent/%.o)
# The part of Debian's zlib that compresses needs nothing of glibc that musl does not have.
AGENT_ZLIB    := $(shell gcc -print-file-name=libz.a)
AGENT_CFLAGS  := -std=gnu11 -Os -g -Wall -Wextra -Wshadow -Wstrict-prototypes \
	-Wmissing-prototypes -Wformat=2 -Wvla -Wundef -Wwrite-strings -Wcast-qual \
	-Wimplicit-fallthrough -Wno-unused-parameter $(if $(WERROR),-Werror) \
	-fPIE -fstack-protector-strong -D_GNU_SOURCE -DKVMSCOPE_VERSION='"$(VERSION)"' -I. \
	-ffunction-sections -fdata-sections -idirafter /usr/include \
	-idirafter /usr/include/x86_64-linux-gnu
# musl-gcc has no -static-pie: rcrt1.o is the start of a program that relocates itself.
MUSL          := /usr/lib/x86_64-linux-musl
STATIC_LDFLAGS := -static -nostartfiles -Wl,-pie,--no-dynamic-linker,-z,text -Wl,--build-id \
	-Wl,-z,relro,-z,now $(MUSL)/rcrt1.o $(MUSL)/crti.o
STATIC_END    := $(MUSL)/crtn.o

build/agent/%.o: %.c guest-agent/module.mk
	@mkdir -p $(@D)
	@echo "  MUSLCC  $<"
	$(Q)command -v musl-gcc > /dev/null || { \
		echo "kvmscope: musl-gcc is missing (package musl-tools): make deps" >&2; exit 1; }
	$(Q)musl-gcc $(AGENT_CFLAGS) -MMD -MP -c -o $@ $<

# Its symbols stay, 24 KiB: a profile of the guest names the agent's functions.
build/agent/kvmscope-agent: $(AGENT_OBJECTS)
	@echo "  LD      $@"
	$(Q)musl-gcc $(STATIC_LDFLAGS) -Wl,--strip-debug -Wl,--gc-sections -o $@ $^ $(AGENT_ZLIB) \
		$(STATIC_END)

all: build/agent/kvmscope-agent
TEST_NEEDS += build/agent/kvmscope-agent
