/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes to the kernel's variables panic_timeout, panic_on_oops and panic_on_warn over several
 * boots of a machine and while its CPUs change, and prints the number of writes.
 *
 *	life
 *		as /dev/vda says: in the first boot CPU 1 is brought up late, taken down and
 *		brought up again, and processes write that can be told apart; then a reset;
 *		after that the writes are repeated, and then a kexec of /bin/vmlinuz with
 *		/bin/kexec.cpio
 *	life ask
 *		the same, but each boot waits until the host has located its kernel, and the
 *		first boot lets the host add and remove watches: it prints "life: ask: NAME"
 *		and waits for a line from the console
 *	life end [ask]
 *		the part after the kexec
 *
 * Uses CPU 1 only if it exists.
 *
 * Prints "life: BOOT: NAME COUNT" for each, and "life: BOOT: _text ADDRESS".
 */
#include <asm/bootparam.h>
#include <fcntl.h>
#include <linux/kexec.h>
#include <linux/reboot.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/rig/guest/guest_program.h"

#define SECONDS_TO_BE_FOUND 2
#define CHOSEN_PID          4321

static const char *boot;
static bool asks;

/*
 * A process that makes system calls, so that the host has samples of them, until it is told to
 * continue.
 */
static void ask(const char *what)
{
	struct pollfd console = { .fd = 0, .events = POLLIN };
	char line[16];

	printf("life: ask: %s\n", what);
	fflush(stdout);
	while (!poll(&console, 1, 0))
		syscall(SYS_getppid);
	check(read(0, line, sizeof(line)) > 0, "the console");
}

/* System calls that the host's samples show by symbol. */
static void work(int seconds)
{
	struct timespec now, end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += seconds;
	do {
		syscall(SYS_getppid);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec < end.tv_sec ||
		 (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
}

/* The host arms its watches when it has located the kernel, for which it needs samples of it. */
static void wait_until_located(void)
{
	if (asks)
		ask("found");
	work(asks ? 1 : SECONDS_TO_BE_FOUND);
}

static void write_text(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);

	check(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text), path);
	close(file);
}

static void report(const char *what, unsigned long long value)
{
	printf("life: %s: %s %llu\n", boot, what, value);
	fflush(stdout);
}

static void write_variable(const char *path, int count)
{
	int file = open(path, O_WRONLY);

	check(file >= 0, path);
	for (int i = 0; i < count; i++)
		check(pwrite(file, "0", 1, 0) == 1, path);
	close(file);
}

/*
 * Each variable COUNT times, one after the other, because an emulator reports only one watchpoint
 * of several at an address.
 */
static void write_variables(const char *who, int count)
{
	static const char *const paths[] = { "/proc/sys/kernel/panic",
					     "/proc/sys/kernel/panic_on_oops",
					     "/proc/sys/kernel/panic_on_warn" };

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		write_variable(paths[i], count);
	report(who, (unsigned long long)count);
}

static void report_text(void)
{
	FILE *file = fopen("/proc/kallsyms", "r");
	unsigned long long address;
	char type, name[128];

	check(file, "/proc/kallsyms");
	while (fscanf(file, "%llx %c %127s%*[^\n]", &address, &type, name) == 3)
		if (!strcmp(name, "_text")) {
			printf("life: %s: _text %#llx\n", boot, address);
			break;
		}
	fclose(file);
}

static void go_to(int cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	check(!sched_setaffinity(0, sizeof(cpus), &cpus), "sched_setaffinity");
}

static const char online[] = "/sys/devices/system/cpu/cpu1/online";

static void use_second_cpu(void)
{
	for (int i = 0; i < 2; i++) {
		write_text(online, "1");
		go_to(1);
		write_variables("on_cpu1", i ? 200 : 300);
		go_to(0);
		write_text(online, "0");
	}
}

/* Runs a process called NAME, with PID unless that is 0. */
static void run_process(const char *name, pid_t pid, int count)
{
	struct clone_args arguments = { .exit_signal = SIGCHLD,
					.set_tid = pid ? (uintptr_t)&pid : 0,
					.set_tid_size = pid != 0 };
	long child = syscall(SYS_clone3, &arguments, sizeof(arguments));
	int status;

	check(child >= 0, "clone3");
	if (!child) {
		prctl(PR_SET_NAME, name);
		write_variables(name, count);
		_exit(0);
	}
	check(waitpid((pid_t)child, &status, 0) == child && !status, name);
}

/* A process that the host identifies by its page tables; writes of its parent must not count. */
static void run_asked(void)
{
	static const char path[] = "/proc/sys/kernel/panic_on_io_nmi";
	pid_t child = fork();
	int status;

	check(child >= 0, "fork");
	if (!child) {
		prctl(PR_SET_NAME, "asked");
		ask("cr3");
		write_variable(path, 130);
		_exit(0);
	}
	check(waitpid(child, &status, 0) == child && !status, "asked");
	write_variable(path, 90);
	report("of_asked", 130);
}

/* Each socket that is closed is counted in dccp_orphan_count and removed again, on its CPU. */
static void use_module(void)
{
	ask("module");
	write_text(online, "1");
	for (int cpu = 0; cpu < 2; cpu++) {
		go_to(cpu);
		for (int i = 0; i < (cpu ? 110 : 60); i++) {
			int file = socket(AF_INET, SOCK_DCCP, IPPROTO_DCCP);

			check(file >= 0 && !close(file), "a DCCP socket");
		}
	}
	go_to(0);
	write_text(online, "0");
	report("of_module_0", 2 * 60);
	report("of_module_1", 2 * 110);
}

/* Writes 1, 2, 3, ... as fast as possible for a second. */
static void write_storm(void)
{
	int file = open("/proc/sys/kernel/panic_print", O_WRONLY);
	unsigned long count = 0;
	time_t end;

	check(file >= 0, "panic_print");
	ask("storm");
	for (end = time(NULL) + 2; time(NULL) < end;) {
		char number[32];
		int length = snprintf(number, sizeof(number), "%lu", ++count);

		check(pwrite(file, number, (size_t)length, 0) == length, "panic_print");
	}
	close(file);
	report("of_storm", count);
}

static void reset(void)
{
	write_text("/dev/vda", "1");
	sync();
	check(!reboot(RB_AUTOBOOT), "reboot");
}

static unsigned char *read_file(const char *path, size_t *size)
{
	struct stat status;
	unsigned char *content;
	int file = open(path, O_RDONLY);

	check(file >= 0 && !fstat(file, &status), path);
	*size = (size_t)status.st_size;
	content = malloc(*size);
	check(content && read(file, content, *size) == (ssize_t)*size, path);
	close(file);
	return content;
}

/* Passes this kernel's boot parameters to the next one: ACPI's tables and the memory map. */
static void read_boot_parameters(struct boot_params *parameters)
{
	int file = open("/sys/kernel/boot_params/data", O_RDONLY);

	check(file >= 0 && read(file, parameters, sizeof(*parameters)) == sizeof(*parameters),
	      "boot_params");
	close(file);
}

#define KERNEL_ADDRESS     0x2000000ul
#define INITRD_ADDRESS     0xc000000ul
#define PARAMETERS_ADDRESS 0x80000ul
#define PAGE               4096ul
#define PAGES(size)        (((size) + PAGE - 1) & ~(PAGE - 1))

/* Pages for the boot parameters, the command line and the code. */
struct beginning {
	struct boot_params parameters;
	char append[PAGE];
	unsigned char code[PAGE];
};

/* mov $PARAMETERS_ADDRESS, %rsi; mov $ENTRY, %rax; jmp *%rax (Documentation/arch/x86/boot.rst,
 * 64-bit protocol). */
static void write_code(unsigned char *code, uint64_t entry)
{
	static const unsigned char before[] = { 0x48, 0xbe }, between[] = { 0x48, 0xb8 },
				   jump[] = { 0xff, 0xe0 };
	const uint64_t parameters = PARAMETERS_ADDRESS;

	memcpy(code, before, sizeof(before));
	memcpy(code + 2, &parameters, sizeof(parameters));
	memcpy(code + 10, between, sizeof(between));
	memcpy(code + 12, &entry, sizeof(entry));
	memcpy(code + 20, jump, sizeof(jump));
}

static void prepare_beginning(struct beginning *beginning, const struct setup_header *header,
			      size_t initrd_size)
{
	struct setup_header *to = &beginning->parameters.hdr;

	read_boot_parameters(&beginning->parameters);
	*to = *header;
	to->type_of_loader = 0xff;
	to->cmd_line_ptr = PARAMETERS_ADDRESS + offsetof(struct beginning, append);
	to->ramdisk_image = INITRD_ADDRESS;
	to->ramdisk_size = (uint32_t)initrd_size;
	strcpy(beginning->append, "console=ttyS0 quiet kvmscope.run=life+end");
	if (asks)
		strcat(beginning->append, "+ask");
	write_code(beginning->code, KERNEL_ADDRESS + 0x200);
}

/*
 * Does not use kexec_file_load(2), which computes a checksum of all memory of the next kernel,
 * twice; that takes minutes in an emulator.
 */
static void start_next_kernel(void)
{
	static struct beginning beginning;
	size_t kernel_size, initrd_size, setup_size;
	unsigned char *kernel = read_file("/bin/vmlinuz", &kernel_size);
	unsigned char *initrd = read_file("/bin/kexec.cpio", &initrd_size);
	const struct setup_header *header =
		(const struct setup_header *)(kernel + offsetof(struct boot_params, hdr));
	struct kexec_segment segments[3];

	setup_size = (header->setup_sects + 1u) * 512;
	prepare_beginning(&beginning, header, initrd_size);
	segments[0] = (struct kexec_segment){ &beginning, sizeof(beginning),
					      (void *)PARAMETERS_ADDRESS, sizeof(beginning) };
	segments[1] = (struct kexec_segment){ kernel + setup_size, kernel_size - setup_size,
					      (void *)KERNEL_ADDRESS, PAGES(header->init_size) };
	segments[2] = (struct kexec_segment){ initrd, initrd_size, (void *)INITRD_ADDRESS,
					      PAGES(initrd_size) };
	check(!syscall(SYS_kexec_load, PARAMETERS_ADDRESS + offsetof(struct beginning, code), 3l,
		       segments, KEXEC_ARCH_X86_64),
	      "kexec_load");
	report("kexec", 1);
	check(!reboot((int)LINUX_REBOOT_CMD_KEXEC), "kexec");
}

static bool was_reset(void)
{
	char state = 0;
	int disk = open("/dev/vda", O_RDONLY);

	check(disk >= 0 && read(disk, &state, 1) == 1, "/dev/vda");
	close(disk);
	return state == '1';
}

int main(int argc, char **argv)
{
	bool end = argc > 1 && !strcmp(argv[1], "end");

	asks = argc > 1 && !strcmp(argv[argc - 1], "ask");
	boot = end ? "third" : was_reset() ? "second" : "first";
	report_text();
	wait_until_located();
	write_variables("all", end ? 500 : 1000);
	if (end)
		return 0;
	if (was_reset())
		start_next_kernel();
	if (!access(online, F_OK))
		use_second_cpu();
	run_process("chosen", CHOSEN_PID, 150);
	run_process("other", 0, 70);
	if (asks) {
		run_asked();
		use_module();
		write_storm();
		ask("end");
	}
	reset();
	return 1;
}
