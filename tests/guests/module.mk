# SPDX-License-Identifier: Apache-2.0
# Freestanding guests for tests, one image in three forms: ELF64 with a PVH and
# a 64-bit entry, and multiboot as ELF32 and as ELF64. Those with "low" in their
# name are linked below 1 MiB. No sanitizer, no SSE, nothing that KVM's instruction
# emulator does not know.
GUEST_SOURCES := $(wildcard tests/guests/*.c) tests/guests/start.S
GUEST_OBJECTS := $(patsubst tests/guests/%,build/guests/objects/%.o,$(GUEST_SOURCES))
GUEST_IMAGES  := $(addprefix build/guests/,guest.elf guest-multiboot.elf guest-multiboot64.elf \
	guest-low.elf guest-low-multiboot.elf)
GUEST_CFLAGS  := -std=gnu11 -O2 -g -m64 -Wall -Wextra -Wshadow -Wno-unused-parameter -Werror -I. \
	-ffreestanding -fno-pic -fno-pie -mno-red-zone -mgeneral-regs-only -mcmodel=small \
	-fno-stack-protector -fcf-protection=none \
	-fno-asynchronous-unwind-tables -fno-omit-frame-pointer -fno-tree-loop-distribute-patterns
GUEST_LDFLAGS := -nostdlib -static -no-pie -Wl,--build-id=sha1 -Wl,-z,max-page-size=4096 \
	-Wl,--no-warn-rwx-segments -Wl,-T,tests/guests/guest.ld

build/guests/objects/%.o: tests/guests/% $(addprefix tests/guests/,guest.h spin_loop.h module.mk)
	@mkdir -p $(@D)
	@echo "  GUESTCC $<"
	$(Q)gcc $(GUEST_CFLAGS) -c -o $@ $<

build/guests/guest.elf: $(GUEST_OBJECTS) tests/guests/guest.ld
	$(Q)gcc $(GUEST_LDFLAGS) -Wl,-e,start64 -o $@ $(GUEST_OBJECTS)

build/guests/guest-multiboot64.elf: $(GUEST_OBJECTS) tests/guests/guest.ld
	$(Q)gcc $(GUEST_LDFLAGS) -Wl,-e,start32 -o $@ $(GUEST_OBJECTS)

build/guests/guest-multiboot.elf: build/guests/guest-multiboot64.elf
	$(Q)objcopy -O elf32-i386 $< $@

# The linker script tests for the symbol, which is therefore defined first.
GUEST_LOW := -Wl,--defsym=guest_base=0x8000

build/guests/guest-low.elf: $(GUEST_OBJECTS) tests/guests/guest.ld
	$(Q)gcc $(GUEST_LOW) $(GUEST_LDFLAGS) -Wl,-e,start64 -o $@ $(GUEST_OBJECTS)

build/guests/guest-low-multiboot.elf: $(GUEST_OBJECTS) tests/guests/guest.ld
	$(Q)gcc $(GUEST_LOW) $(GUEST_LDFLAGS) -Wl,-e,start32 -o $@ $(GUEST_OBJECTS)

TEST_NEEDS += $(GUEST_IMAGES)
