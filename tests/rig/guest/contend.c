/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contends for a spinlock of the kernel for SECONDS (1st argument): a thread on each of two vCPUs
 * sets and removes a lock of one file, which has so many that posix_lock_inode() (fs/locks.c)
 * nearly always holds flc_lock to search its list. Before that, one thread does the same alone for
 * as long. Prints how often either set a lock, and in how much CPU time.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "tests/rig/guest/guest_program.h"

#define LOCKS 4000

static int file;

struct worker {
	pthread_t thread;
	int vcpu;
	double end;
	unsigned long rounds;
	double cpu_time;
};

static void set_lock(short type, off_t at)
{
	struct flock lock = { .l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1 };

	check(!fcntl(file, F_SETLK, &lock), "fcntl");
}

static void *contend(void *argument)
{
	struct worker *worker = argument;
	struct timespec used;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(worker->vcpu, &set);
	check(!sched_setaffinity(0, sizeof(set), &set), "sched_setaffinity");
	while (now() < worker->end) {
		set_lock(F_WRLCK, 2 * (LOCKS + worker->vcpu));
		set_lock(F_UNLCK, 2 * (LOCKS + worker->vcpu));
		worker->rounds++;
	}
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	worker->cpu_time = (double)used.tv_sec + (double)used.tv_nsec / 1e9;
	return NULL;
}

int main(int count, char **arguments)
{
	double seconds = count > 1 ? atof(arguments[1]) : 1;
	struct worker alone = { .vcpu = 0 }, both[2] = { { .vcpu = 0 }, { .vcpu = 1 } };

	file = open("/contended", O_RDWR | O_CREAT, 0600);
	check(file >= 0, "open");
	for (off_t i = 0; i < LOCKS; i++)
		set_lock(F_WRLCK, 2 * i);
	alone.end = now() + seconds;
	check(!pthread_create(&alone.thread, NULL, contend, &alone), "pthread_create");
	pthread_join(alone.thread, NULL);
	printf("contend: alone %lu rounds in %.3f s\n", alone.rounds, alone.cpu_time);
	fflush(stdout);
	for (int i = 0; i < 2; i++) {
		both[i].end = now() + seconds;
		check(!pthread_create(&both[i].thread, NULL, contend, &both[i]), "pthread_create");
	}
	for (int i = 0; i < 2; i++)
		pthread_join(both[i].thread, NULL);
	printf("contend: both %lu rounds in %.3f s\n", both[0].rounds + both[1].rounds,
	       both[0].cpu_time + both[1].cpu_time);
	return 0;
}
