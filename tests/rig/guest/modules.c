/* SPDX-License-Identifier: Apache-2.0 */
/*
 * modules SECONDS NAME...: loads the modules in turn, each immediately after the previous one was
 * unloaded, so that they get the same address. Each is a hash of the kernel (crypto/NAME.c, in
 * /bin) and is used for SECONDS by a process with the same name, so the process of a sample
 * identifies the loaded module.
 *
 * Prints "modules: begin", for each module "modules: NAME at ADDRESS" (of its text), and "modules:
 * end".
 *
 * modules again NAME PARAMETER OTHER COUNT: loads NAME, writes its PARAMETER COUNT times, unloads
 * it, loads OTHER, then NAME again, and writes COUNT times more. After loading and unloading NAME
 * it waits for a line of the host, which has noticed it by then.
 *
 * Prints "modules: PARAMETER at ADDRESS" whenever the parameter can be written, and "modules:
 * PARAMETER written COUNT times" at the end.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_alg.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/rig/guest/guest_program.h"

#define KEY_SIZE 8 /* for michael_mic, which requires a key */

static char block[64 << 10];

static int open_hash(const char *name)
{
	struct sockaddr_alg address = { .salg_family = AF_ALG, .salg_type = "hash" };
	int hash = socket(AF_ALG, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	strncpy((char *)address.salg_name, name, sizeof(address.salg_name) - 1);
	check(hash >= 0 && !bind(hash, (struct sockaddr *)&address, sizeof(address)), name);
	if (!strcmp(name, "michael_mic"))
		check(!setsockopt(hash, SOL_ALG, ALG_SET_KEY, block, KEY_SIZE), "ALG_SET_KEY");
	return hash;
}

static void use(const char *name, double seconds)
{
	double end = now() + seconds;
	int hash = open_hash(name), operation = accept(hash, NULL, 0);
	char digest[64];

	check(operation >= 0, "accept");
	while (now() < end)
		check(send(operation, block, sizeof(block), 0) == sizeof(block) &&
			      read(operation, digest, sizeof(digest)) > 0,
		      name);
}

static void print_address(const char *name)
{
	char path[128], address[32] = "nowhere";
	FILE *file;

	snprintf(path, sizeof(path), "/sys/module/%s/sections/.text", name);
	file = fopen(path, "r");
	if (file && fgets(address, sizeof(address), file))
		fclose(file);
	printf("modules: %s at %s", name, address);
	fflush(stdout);
}

static void load(const char *name)
{
	char path[128];
	int file;

	snprintf(path, sizeof(path), "/bin/%s.ko", name);
	file = open(path, O_RDONLY | O_CLOEXEC);
	check(file >= 0 && !syscall(SYS_finit_module, file, "", 0), path);
	close(file);
}

/* The kernel releases a hash some time after its last use. */
static void unload(const char *name)
{
	double end = now() + 5;
	int error;

	while ((error = syscall(SYS_delete_module, name, O_NONBLOCK)) && errno == EAGAIN &&
	       now() < end)
		usleep(1000);
	check(!error, "delete_module");
}

static void run(const char *name, double seconds)
{
	pid_t child = fork();
	int status;

	if (!child) {
		prctl(PR_SET_NAME, name);
		use(name, seconds);
		_exit(0);
	}
	check(child > 0 && waitpid(child, &status, 0) == child && !status, name);
}

/* s, for a slow host */
#define HOST_SLOW 100

/* The guest stays busy, because the host reads memory of running guests only. */
static void wait_for_host(void)
{
	struct pollfd host = { .fd = STDIN_FILENO, .events = POLLIN };
	double end = now() + HOST_SLOW;
	char line[64];

	while (!poll(&host, 1, 0))
		check(now() < end || (errno = ETIMEDOUT, 0), "no line of the host");
	check(read(STDIN_FILENO, line, sizeof(line)) > 0, "the host's line");
}

static void print_variable(const char *name)
{
	FILE *symbols = fopen("/proc/kallsyms", "r");
	char line[256], found[128];
	unsigned long long address;

	check(symbols != NULL, "/proc/kallsyms");
	while (fgets(line, sizeof(line), symbols))
		if (sscanf(line, "%llx %*c %127s", &address, found) == 2 && !strcmp(found, name))
			printf("modules: %s at 0x%llx\n", name, address);
	fclose(symbols);
	fflush(stdout);
}

static void write_parameter(const char *module, const char *parameter, int count)
{
	char path[128], number[16];
	int file;

	snprintf(path, sizeof(path), "/sys/module/%s/parameters/%s", module, parameter);
	file = open(path, O_WRONLY | O_CLOEXEC);
	for (int i = 1; i <= count; i++) {
		int length = snprintf(number, sizeof(number), "%d", i);

		check(pwrite(file, number, (size_t)length, 0) == length, path);
	}
	close(file);
}

static void load_again(const char *name, const char *parameter, const char *other, int count)
{
	for (int i = 0; i < 2; i++) {
		load(name);
		print_variable(parameter);
		wait_for_host();
		write_parameter(name, parameter, count);
		unload(name);
		wait_for_host();
		if (i == 0)
			load(other);
	}
	printf("modules: %s written %d times\n", parameter, 2 * count);
}

int main(int argc, char **argv)
{
	if (argc == 6 && !strcmp(argv[1], "again")) {
		load_again(argv[2], argv[3], argv[4], atoi(argv[5]));
		return 0;
	}
	check(argc > 2, "modules SECONDS NAME...");
	printf("modules: begin\n");
	for (int i = 2; i < argc; i++) {
		load(argv[i]);
		print_address(argv[i]);
		run(argv[i], atof(argv[1]));
		unload(argv[i]);
	}
	printf("modules: end\n");
	return 0;
}
