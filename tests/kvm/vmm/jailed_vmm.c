/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A VMM for tests of attach that looks to other processes as Firecracker or cloud-hypervisor does:
 * a static program, guest memory in a shared memfd, two vCPU threads with the names and the
 * seccomp filters of the VMM whose name the program has. The guest runs one loop at CPL 3, with a
 * frame that names a caller.
 *
 * Names and filters are from the sources of Firecracker (src/vmm/src/vstate/vcpu.rs,
 * resources/seccomp) and cloud-hypervisor (vmm/src/cpu.rs, vmm/src/seccomp_filters.rs).
 */
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/kvm.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MEMORY_SIZE (16u << 20)
#define SPLIT       (8u << 20) /* two memslots */
#define CPUS        2
#define PML4        0x1000u
#define PDPT        0x2000u
#define PD          0x3000u
#define GDT         0x4000u
#define CODE        0x10000u
#define CALLER      0x11004u
#define FRAME       0x8fe10u
#define TSS         0xfffbd000u /* KVM_SET_TSS_ADDR: any three pages without memory */
#define OPEN        7u          /* present, writable, user */
#define LARGE       0x80u

struct vmm {
	const char *thread_name; /* format */
	const unsigned int *requests;
	size_t request_count;
	int kvm, vm;
	uint8_t *memory;
};

struct cpu {
	const struct vmm *vmm;
	int id, fd;
	pthread_barrier_t *ready;
};

/* What the thread of a vCPU may request of KVM. */
static const unsigned int firecracker_requests[] = {
	KVM_RUN,           KVM_GET_MP_STATE,  KVM_SET_MP_STATE, KVM_GET_VCPU_EVENTS, KVM_GET_LAPIC,
	KVM_GET_SREGS,     KVM_SET_CPUID2,    KVM_SET_LAPIC,    KVM_SET_MSRS,        KVM_SET_REGS,
	KVM_SET_SREGS,     KVM_GET_PIT2,      KVM_GET_REGS,     KVM_GET_MSRS,        KVM_GET_CPUID2,
	KVM_GET_DEBUGREGS, KVM_SET_DEBUGREGS, KVM_GET_XSAVE,    KVM_SET_XSAVE,       KVM_GET_XCRS,
	KVM_SET_XCRS,      KVM_SET_TSC_KHZ,   KVM_GET_TSC_KHZ,  KVM_SET_VCPU_EVENTS,
};
static const unsigned int cloud_hypervisor_requests[] = {
	KVM_CHECK_EXTENSION,
	KVM_IOEVENTFD,
	KVM_IRQFD,
	KVM_SET_DEVICE_ATTR,
	KVM_SET_GSI_ROUTING,
	KVM_SET_USER_MEMORY_REGION,
	KVM_RUN,
	KVM_NMI,
};

/* Other calls that they permit, of those that this program or its C library makes or may make. */
static const unsigned int allowed_calls[] = {
	SYS_read,         SYS_exit_group,    SYS_exit,   SYS_write,   SYS_close, SYS_fstat,
	SYS_brk,          SYS_clock_gettime, SYS_munmap, SYS_madvise, SYS_futex, SYS_rt_sigprocmask,
	SYS_rt_sigreturn, SYS_sigaltstack,
};

static void fail(const char *what)
{
	perror(what);
	_exit(1);
}

static int must(int result, const char *what)
{
	if (result < 0)
		fail(what);
	return result;
}

struct filter {
	struct sock_filter code[128];
	unsigned short length;
};

static void add(struct filter *filter, struct sock_filter instruction)
{
	filter->code[filter->length++] = instruction;
}

static void load(struct filter *filter, size_t offset)
{
	add(filter, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned int)offset));
}

static void allow(struct filter *filter, unsigned int value)
{
	add(filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
	add(filter, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
}

static void trap(struct filter *filter)
{
	add(filter, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP));
}

/* Of the calling thread only. Both VMMs trap what they do not permit, and end then. */
static void confine(const unsigned int *requests, size_t count)
{
	struct filter filter = { 0 };
	struct sock_fprog program = { .filter = filter.code };

	load(&filter, offsetof(struct seccomp_data, arch));
	add(&filter,
	    (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0));
	trap(&filter);
	load(&filter, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < sizeof(allowed_calls) / sizeof(allowed_calls[0]); i++)
		allow(&filter, allowed_calls[i]);
	add(&filter, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 1, 0));
	trap(&filter);
	load(&filter, offsetof(struct seccomp_data, args[1]));
	for (size_t i = 0; i < count; i++)
		allow(&filter, requests[i]);
	trap(&filter);
	program.len = filter.length;
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
	must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), "seccomp");
}

static void add_memory(const struct vmm *vmm, unsigned int slot, uint64_t from, uint64_t to)
{
	struct kvm_userspace_memory_region region = {
		.slot = slot,
		.guest_phys_addr = from,
		.memory_size = to - from,
		.userspace_addr = (uintptr_t)(vmm->memory + from),
	};

	must(ioctl(vmm->vm, KVM_SET_USER_MEMORY_REGION, &region), "KVM_SET_USER_MEMORY_REGION");
}

static void create_memory(struct vmm *vmm)
{
	int fd = must(memfd_create("guest_mem", MFD_CLOEXEC), "memfd_create");

	must(ftruncate(fd, MEMORY_SIZE), "ftruncate");
	vmm->memory =
		mmap(NULL, MEMORY_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (vmm->memory == MAP_FAILED)
		fail("mmap");
	add_memory(vmm, 0, 0, SPLIT);
	add_memory(vmm, 1, SPLIT, MEMORY_SIZE);
}

static void put(const struct vmm *vmm, uint64_t gpa, uint64_t value)
{
	memcpy(vmm->memory + gpa, &value, sizeof(value));
}

/* mov rbp, FRAME; jmp . */
static const uint8_t loop[] = { 0x48, 0xc7, 0xc5, 0x10, 0xfe, 0x08, 0x00, 0xeb, 0xfe };
static const uint8_t call[] = { 0xff, 0xd0 }; /* call *%rax */

static void fill_memory(const struct vmm *vmm)
{
	static const uint64_t gdt[] = { 0, 0, 0, 0, 0x00cff3000000ffff, 0x00affb000000ffff };

	put(vmm, PML4, PDPT | OPEN);
	put(vmm, PDPT, PD | OPEN);
	for (uint64_t i = 0; i < MEMORY_SIZE >> 21; i++)
		put(vmm, PD + i * 8, i << 21 | OPEN | LARGE);
	memcpy(vmm->memory + GDT, gdt, sizeof(gdt));
	memcpy(vmm->memory + CODE, loop, sizeof(loop));
	memcpy(vmm->memory + CALLER - sizeof(call), call, sizeof(call));
	put(vmm, FRAME + 8, CALLER);
}

static struct kvm_segment segment(unsigned short selector, bool code)
{
	return (struct kvm_segment){
		.limit = 0xffffffff,
		.selector = selector,
		.type = code ? 11 : 3,
		.present = 1,
		.dpl = 3,
		.s = 1,
		.l = code,
		.db = !code,
		.g = 1,
	};
}

static void set_cpuid(const struct vmm *vmm, int fd)
{
	struct {
		struct kvm_cpuid2 head;
		struct kvm_cpuid_entry2 entries[256];
	} cpuid = { .head.nent = 256 };

	must(ioctl(vmm->kvm, KVM_GET_SUPPORTED_CPUID, &cpuid), "KVM_GET_SUPPORTED_CPUID");
	must(ioctl(fd, KVM_SET_CPUID2, &cpuid), "KVM_SET_CPUID2");
}

static int create_cpu(const struct vmm *vmm, int id)
{
	struct kvm_mp_state runnable = { .mp_state = KVM_MP_STATE_RUNNABLE };
	struct kvm_regs registers = { .rip = CODE, .rsp = FRAME - 0x10, .rflags = 2 };
	struct kvm_sregs special;
	int fd = must(ioctl(vmm->vm, KVM_CREATE_VCPU, id), "KVM_CREATE_VCPU");

	set_cpuid(vmm, fd);
	must(ioctl(fd, KVM_GET_SREGS, &special), "KVM_GET_SREGS");
	special.cr0 = 0x80050033; /* PG, AM, WP, NE, ET, MP, PE */
	special.cr3 = PML4;
	special.cr4 = 0x620;  /* PAE, OSFXSR, OSXMMEXCPT */
	special.efer = 0x500; /* LME, LMA */
	special.gdt.base = GDT;
	special.gdt.limit = 6 * 8 - 1;
	special.cs = segment(0x28 | 3, true);
	special.ss = special.ds = special.es = special.fs = special.gs = segment(0x20 | 3, false);
	must(ioctl(fd, KVM_SET_SREGS, &special), "KVM_SET_SREGS");
	must(ioctl(fd, KVM_SET_REGS, &registers), "KVM_SET_REGS");
	must(ioctl(fd, KVM_SET_MP_STATE, &runnable), "KVM_SET_MP_STATE");
	return fd;
}

static void *run_cpu(void *argument)
{
	const struct cpu *cpu = argument;
	const struct vmm *vmm = cpu->vmm;
	char name[16];

	snprintf(name, sizeof(name), vmm->thread_name, cpu->id);
	pthread_setname_np(pthread_self(), name);
	confine(vmm->requests, vmm->request_count);
	pthread_barrier_wait(cpu->ready);
	for (;;)
		if (ioctl(cpu->fd, KVM_RUN, 0) >= 0)
			exit(1); /* the guest does not exit */
	return NULL;
}

static void on_kick(int number)
{
	(void)number;
}

int main(int count, char **arguments)
{
	static struct cpu cpus[CPUS];
	static pthread_barrier_t ready;
	pthread_t thread;
	char byte;
	struct vmm vmm = {
		.thread_name = "fc_vcpu %d",
		.requests = firecracker_requests,
		.request_count = sizeof(firecracker_requests) / sizeof(firecracker_requests[0]),
	};

	if (count && strstr(arguments[0], "cloud-hypervisor")) {
		vmm.thread_name = "vcpu%d";
		vmm.requests = cloud_hypervisor_requests;
		vmm.request_count =
			sizeof(cloud_hypervisor_requests) / sizeof(cloud_hypervisor_requests[0]);
	}
	vmm.kvm = must(open("/dev/kvm", O_RDWR | O_CLOEXEC), "/dev/kvm");
	vmm.vm = must(ioctl(vmm.kvm, KVM_CREATE_VM, 0), "KVM_CREATE_VM");
	must(ioctl(vmm.vm, KVM_SET_TSS_ADDR, TSS), "KVM_SET_TSS_ADDR");
	must(ioctl(vmm.vm, KVM_CREATE_IRQCHIP, 0), "KVM_CREATE_IRQCHIP");
	create_memory(&vmm);
	fill_memory(&vmm);
	signal(SIGRTMIN, on_kick); /* both VMMs make a vCPU leave the guest by a signal */
	pthread_barrier_init(&ready, NULL, CPUS + 1);
	for (int i = 0; i < CPUS; i++) {
		cpus[i] = (struct cpu){ &vmm, i, create_cpu(&vmm, i), &ready };
		if (pthread_create(&thread, NULL, run_cpu, &cpus[i]))
			fail("pthread_create");
	}
	pthread_barrier_wait(&ready);
	puts("running");
	fflush(stdout);
	confine(NULL, 0);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	_exit(0);
}
