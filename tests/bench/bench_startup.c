/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time from exec of kvmscope to the first instructions of the guest kernel, what the sandbox
 * adds to it and to an exit, and the resident memory of kvmscope apart from the guest's RAM. The
 * kernel is an ELF file, made here, that writes to a port some times, and then a byte to the serial
 * port.
 */
#include <elf.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"

#define PROGRAM   "build/kvmscope"
#define KERNEL    "build/bench/first.elf"
#define LOAD      0x100000
#define RUNS_MAX  15
#define RUNS      bench_size(RUNS_MAX, 2)
#define GUEST_MIB 128
#define EXITS     20000

static const struct bench_bound memory_bound = { BENCH_MOST, 8 }; /* MiB */

/* mov ecx,1; mov dx,0x80; 1: out dx,al; dec ecx; jnz 1b; mov dx,0x3f8; mov al,'!'; out dx,al;
 * 2: hlt; jmp 2b */
static uint8_t code[] = { 0xb9, 1,    0,    0,    0,    0x66, 0xba, 0x80, 0x00, 0xee, 0xff, 0xc9,
			  0x75, 0xfb, 0x66, 0xba, 0xf8, 0x03, 0xb0, '!',  0xee, 0xf4, 0xeb, 0xfd };

static int write_kernel(uint32_t exits)
{
	memcpy(code + 1, &exits, sizeof(exits));

	struct {
		Elf64_Ehdr header;
		Elf64_Phdr program;
		uint8_t code[sizeof(code)];
	} file = {
		.header = { .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64,
					 ELFDATA2LSB, EV_CURRENT },
			    .e_type = ET_EXEC,
			    .e_machine = EM_X86_64,
			    .e_version = EV_CURRENT,
			    .e_entry = LOAD,
			    .e_phoff = sizeof(Elf64_Ehdr),
			    .e_ehsize = sizeof(Elf64_Ehdr),
			    .e_phentsize = sizeof(Elf64_Phdr),
			    .e_phnum = 1 },
		.program = { .p_type = PT_LOAD,
			     .p_flags = PF_R | PF_X,
			     .p_offset = offsetof(__typeof__(file), code),
			     .p_vaddr = LOAD,
			     .p_paddr = LOAD,
			     .p_filesz = sizeof(code),
			     .p_memsz = sizeof(code),
			     .p_align = 1 },
	};
	int fd = open(KERNEL, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	ssize_t written;

	memcpy(file.code, code, sizeof(code));
	written = write(fd, &file, sizeof(file));
	close(fd);
	return written == sizeof(file) ? 0 : -1;
}

/* Starts kvmscope with its console on a pipe, whose reading end becomes *CONSOLE. */
static pid_t start(const char *option, const char *sandbox, int *console)
{
	int ends[2];
	pid_t child;

	if (pipe(ends))
		return -1;
	child = fork();
	if (!child) {
		dup2(ends[1], STDOUT_FILENO);
		dup2(open("/dev/null", O_RDWR), STDIN_FILENO);
		close(ends[0]);
		close(ends[1]);
		execl(PROGRAM, PROGRAM, "run", "--quiet", "--kernel", KERNEL, "--mem", "128M",
		      option, sandbox, NULL);
		_exit(127);
	}
	close(ends[1]);
	*console = ends[0];
	return child;
}

/* Whether the guest's byte arrived. */
static bool wait_for_byte(int console)
{
	struct pollfd output = { .fd = console, .events = POLLIN };
	char byte;

	return poll(&output, 1, 10000) == 1 && read(console, &byte, 1) == 1 && byte == '!';
}

static void end(pid_t child, int console)
{
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	close(console);
}

/* ms from exec to the byte, with the option SANDBOX or NULL; negative: the guest does not run. */
static double time_start(const char *sandbox)
{
	uint64_t begin = bench_time(CLOCK_MONOTONIC), passed;
	int console;
	pid_t child = start("--no-profile", sandbox, &console);
	bool up = wait_for_byte(console);

	passed = bench_time(CLOCK_MONOTONIC) - begin;
	end(child, console);
	return up ? passed * 1e-6 : -1;
}

/* KiB resident in all mappings except the guest's RAM, which is recognized by its size. */
static double resident_without_guest(pid_t child)
{
	unsigned long start_address, end_address, kib;
	bool guest = false;
	double sum = 0;
	char path[64], line[512];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/smaps", child);
	file = fopen(path, "r");
	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx-%lx ", &start_address, &end_address) == 2)
			guest = end_address - start_address == GUEST_MIB << 20;
		else if (!guest && sscanf(line, "Rss: %lu kB", &kib) == 1)
			sum += kib;
	}
	if (file)
		fclose(file);
	return sum;
}

static double measure_memory(const char *profile)
{
	int console;
	pid_t child = start(profile, NULL, &console);
	bool up = wait_for_byte(console);
	double resident;

	usleep(300 * 1000);
	resident = resident_without_guest(child);
	end(child, console);
	return up ? resident / 1024 : -1;
}

static void report_memory(const char *what, double mib, struct bench_bound bound)
{
	if (mib < 0)
		bench_skip(what, "the guest does not start");
	else
		bench_print_bound(what, mib, "MiB", bound);
}

/* With the sandbox and without it in turn. False: the guest does not run. */
static bool compare(double *with, double *without)
{
	for (int run = 0; run < RUNS; run++) {
		with[run] = time_start(NULL);
		without[run] = time_start("--no-sandbox");
		if (with[run] < 0 || without[run] < 0)
			return false;
	}
	return true;
}

static void print_comparison(const char *what, double *with, double *without, double per,
			     const char *unit)
{
	double ratios[RUNS_MAX];

	for (int run = 0; run < RUNS; run++)
		ratios[run] = with[run] / without[run];
	bench_print_ratio(what, bench_median(with, RUNS) * per, unit, "--no-sandbox",
			  bench_median(without, RUNS) * per, ratios, (size_t)RUNS);
}

int main(void)
{
	double with[RUNS_MAX], without[RUNS_MAX];

	if (access("/dev/kvm", R_OK | W_OK)) {
		bench_skip("startup and memory", "no /dev/kvm");
		return 0;
	}
	if (write_kernel(1))
		return 1;
	if (!compare(with, without)) {
		bench_skip("startup and memory", "the guest does not start");
		return 1;
	}
	print_comparison("startup: exec of kvmscope to the guest's first instructions", with,
			 without, 1, "ms");
	if (write_kernel(EXITS) || !compare(with, without))
		return 1;
	print_comparison("exit for a port write, from startup on", with, without, 1e3 / EXITS,
			 "us");
	if (write_kernel(1))
		return 1;
	report_memory("memory: resident apart from the guest RAM, 1 vCPU, 128 MiB, no profile",
		      measure_memory("--no-profile"), memory_bound);
	report_memory("memory: resident apart from the guest RAM, 1 vCPU, 128 MiB, profiling",
		      measure_memory("--output=build/bench/memory.data"),
		      (struct bench_bound){ 0 });
	return bench_status();
}
