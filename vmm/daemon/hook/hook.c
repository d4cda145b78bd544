/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hook that libvirt runs: /etc/libvirt/hooks/qemu.d/kvmscope DOMAIN OPERATION SUBOPERATION
 * EXTRA, with the domain's XML on standard input (libvirt: docs/hooks.html). libvirt waits for it,
 * and a failing hook may make the domain fail. So it passes its arguments on and exits after at
 * most 20 ms of running (a busy host may delay it), always with status 0 and without output, which
 * libvirt could take for XML. It needs only the C library.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "vmm/daemon/hook_message.h"

/* kvmscope libvirt install identifies hooks of kvmscope by it. */
__attribute__((used)) static const char mark[] = HOOK_MARK;

#define XML_MS      8     /* from the start, for libvirt to write the XML */
#define DEADLINE_US 16000 /* of libvirt's waiting: then the hook ends wherever it is */
#define LEAST_US    1000  /* waited at least: enough to read what has arrived */

static char message[HOOK_SIZE_MAX + 1]; /* one byte more to detect a longer one */

static uint64_t now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

static void give_up(int signal)
{
	(void)signal;
	_exit(0);
}

/* libvirt then need not write the rest. */
static void close_input(int signal)
{
	(void)signal;
	close(STDIN_FILENO);
}

/* Raises SIGALRM after MICROSECONDS. */
static void arm(long microseconds)
{
	const struct itimerval deadline = {
		.it_value = { .tv_sec = microseconds / 1000000, .tv_usec = microseconds % 1000000 },
	};

	setitimer(ITIMER_REAL, &deadline, NULL);
}

/* Raises SIGALRM when libvirt has waited long enough since START. */
static void arm_deadline(uint64_t start)
{
	uint64_t passed = (now_ms() - start) * 1000;

	arm(passed + LEAST_US < DEADLINE_US ? (long)(DEADLINE_US - passed) : LEAST_US);
}

/* Every fatal signal becomes a regular exit. */
static void prepare_end(void)
{
	static const int signals[] = { SIGALRM, SIGSEGV, SIGBUS,  SIGTERM,
				       SIGHUP,  SIGINT,  SIGXFSZ, SIGABRT };
	sigset_t none;

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		signal(signals[i], give_up);
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* In the other operations nothing runs yet. */
static bool is_relevant(const char *operation)
{
	return strcmp(operation, "prepare") != 0 && strcmp(operation, "start") != 0;
}

static size_t put_word(size_t at, const char *word)
{
	size_t size = strlen(word) + 1;

	if (size > HOOK_WORD_MAX)
		_exit(0);
	memcpy(message + at, word, size);
	return at + size;
}

/* Returns the size of the message without XML. */
static size_t put_head(const char *domain, const char *operation)
{
	return put_word(put_word(put_word(0, HOOK_MAGIC), domain), operation);
}

/* Reads what arrives by DEADLINE (ms), or has arrived if that has passed. Returns the message's
 * size, without XML if that is too long or late. */
static size_t read_xml(size_t start, uint64_t deadline)
{
	struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
	size_t size = start;

	for (;;) {
		uint64_t time = now_ms();
		ssize_t got;

		if (poll(&input, 1, time < deadline ? (int)(deadline - time) : 0) <= 0)
			break;
		got = read(STDIN_FILENO, message + size, sizeof(message) - size);
		if (!got)
			return size;
		if (got < 0)
			break;
		size += (size_t)got;
		if (size - start > HOOK_XML_MAX)
			break;
	}
	return start;
}

static bool write_all(int fd, size_t size)
{
	return write(fd, message, size) == (ssize_t)size;
}

static bool send_file(int socket_fd, int file)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX,
				       .sun_path = HOOK_RUN_DIRECTORY "/" HOOK_SOCKET };
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control = { .head = { .cmsg_len = CMSG_LEN(sizeof(int)),
				.cmsg_level = SOL_SOCKET,
				.cmsg_type = SCM_RIGHTS } };
	struct iovec byte = { (char[]){ 1 }, 1 };
	const struct msghdr packet = {
		.msg_name = &address,
		.msg_namelen = sizeof(address),
		.msg_iov = &byte,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};

	memcpy(CMSG_DATA(&control.head), &file, sizeof(file));
	return sendmsg(socket_fd, &packet, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

/* False: no daemon listens, or it is too slow. */
static bool hand_over(size_t size)
{
	int file = memfd_create("kvmscope-hook", MFD_CLOEXEC);
	int socket_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	return file >= 0 && socket_fd >= 0 && write_all(file, size) && send_file(socket_fd, file);
}

/* A spool of another user is not used. */
static int open_spool(void)
{
	struct stat status;
	int spool;

	mkdir(HOOK_RUN_DIRECTORY, 0755);
	mkdir(HOOK_RUN_DIRECTORY "/" HOOK_SPOOL, 0700);
	spool = open(HOOK_RUN_DIRECTORY "/" HOOK_SPOOL,
		     O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (spool < 0 || fstat(spool, &status) || status.st_uid != geteuid() ||
	    status.st_mode & 022)
		_exit(0);
	return spool;
}

/* Names sort by the time since boot: the daemon reads them in this order. */
static void name_file(char name[64])
{
	struct timespec time;

	clock_gettime(CLOCK_BOOTTIME, &time);
	snprintf(name, 64, "%012llu.%09ld-%d", (unsigned long long)time.tv_sec, time.tv_nsec,
		 getpid());
}

/* Returns the number of messages; FIRST is the oldest. */
static size_t find_oldest(int spool, char first[64])
{
	DIR *directory = fdopendir(dup(spool));
	const struct dirent *entry;
	size_t count = 0;

	*first = '\0';
	if (directory)
		rewinddir(directory);
	while (directory && (entry = readdir(directory))) {
		if (*entry->d_name < '0' || *entry->d_name > '9')
			continue;
		count++;
		if (!*first || strcmp(entry->d_name, first) < 0)
			snprintf(first, 64, "%.63s", entry->d_name);
	}
	if (directory)
		closedir(directory);
	return count;
}

/* Safe with several hooks at once: each drops at most as many as it adds. */
static void make_room(int spool)
{
	char oldest[64];
	int dropped;

	if (find_oldest(spool, oldest) < HOOK_SPOOL_MAX || unlinkat(spool, oldest, 0))
		return;
	dropped = openat(spool, HOOK_DROPPED,
			 O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (dropped >= 0 && write(dropped, ".", 1) == 1)
		close(dropped);
}

/* The file gets its name when it is complete. */
static void queue(size_t size)
{
	int spool = open_spool();
	char name[64], unfinished[72];
	int file;

	make_room(spool);
	name_file(name);
	snprintf(unfinished, sizeof(unfinished), ".%s", name);
	file = openat(spool, unfinished, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		      0600);
	if (file < 0)
		return;
	if (!write_all(file, size) || renameat(spool, unfinished, spool, name))
		unlinkat(spool, unfinished, 0);
}

/* libvirt also waits until nobody can read what it writes: the input is closed by the deadline,
 * and XML that was not read by then is left out. A late alarm finds its handler. */
static size_t read_message(const char *domain, const char *operation, uint64_t start)
{
	size_t head = put_head(domain, operation), size;

	signal(SIGALRM, close_input);
	arm_deadline(start);
	size = read_xml(head, start + XML_MS);
	arm(HOOK_WORK_S * 1000000l);
	close_input(0);
	signal(SIGALRM, give_up);
	return size;
}

static void pass_on(const char *domain, const char *operation, uint64_t start)
{
	size_t size = read_message(domain, operation, start);

	if (!hand_over(size))
		queue(size > HOOK_QUEUED_MAX ? put_head(domain, operation) : size);
}

/* libvirt waits for every process that could write to it. */
static void close_outputs(void)
{
	close(STDOUT_FILENO);
	close(STDERR_FILENO);
}

/* A process that waits for a disk cannot be killed. So a child does what could block, and is left
 * alone if it takes too long: once it has started the message is not lost. */
int main(int argc, char **argv)
{
	uint64_t start = now_ms();
	pid_t child;

	prepare_end();
	if (argc < 3 || !*argv[1] || !is_relevant(argv[2]))
		_exit(0);
	close_outputs();
	child = fork();
	if (!child) {
		pass_on(argv[1], argv[2], start);
		_exit(0);
	}
	arm_deadline(start);
	if (child > 0)
		waitpid(child, NULL, 0);
	_exit(0);
}
