# SPDX-License-Identifier: Apache-2.0
# The BPF programs, each in a header that libbpf loads it from.
BPFTOOL ?= $(shell command -v bpftool || echo /usr/sbin/bpftool)
BPF_FLAGS := -target bpf -D__TARGET_ARCH_x86 -O2 -g -ffile-prefix-map=$(CURDIR)=. -Wall -Werror -I. \
	-I/usr/include/$(shell uname -m)-linux-gnu

build/bpf/%.o: vmm/attach/bpf/%.c $(wildcard vmm/attach/bpf/*.h) vmm/attach/module.mk
	@mkdir -p $(@D)
	@echo "  BPFCC   $<"
	$(Q)$(CLANG) $(BPF_FLAGS) -c -o $@ $<

build/bpf/%.skel.h: build/bpf/%.o
	@echo "  SKEL    $@"
	$(Q)(echo "/* NOLINTBEGIN: generated */" && $(BPFTOOL) gen skeleton $< name $* && \
		echo "/* NOLINTEND */") > $@.new && mv $@.new $@
.PRECIOUS: build/bpf/%.o

BPF_LOADERS := $(addprefix $(BUILD)/vmm/attach/,bpf_skeletons.o seccomp_filter.o exit_counter.o)
$(BPF_LOADERS): $(patsubst %,build/bpf/%.skel.h,guest_sample thread_filters exit_program)
$(BPF_LOADERS): LIBRARY_CFLAGS += -isystem build/bpf

# poisson_times.c's logarithms.
LIBRARY_LIBS += -lm

# The sanitizers' XDR functions need libtirpc's when a program starts; libvirt is loaded later, and
# would load libtirpc too late.
ifdef SANITIZE
LIBRARY_LIBS += -Wl,--push-state,--no-as-needed -l:libtirpc.so.3 -Wl,--pop-state
endif
