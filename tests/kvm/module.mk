# SPDX-License-Identifier: Apache-2.0
# A VMM of its own program, static against musl as Firecracker is.
build/kvm/jailed-vmm: tests/kvm/vmm/jailed_vmm.c tests/kvm/module.mk
	@mkdir -p $(@D)
	@echo "  MUSLCC  $<"
	$(Q)musl-gcc -std=gnu11 -O2 -g -Wall -Wextra -Wshadow -Werror -D_GNU_SOURCE -static \
		-idirafter /usr/include -idirafter /usr/include/x86_64-linux-gnu -o $@ $<

TEST_NEEDS += build/kvm/jailed-vmm
