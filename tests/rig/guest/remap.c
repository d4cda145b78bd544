/* SPDX-License-Identifier: Apache-2.0 */
/*
 * remap SECONDS: processes in which the code at one address changes continuously, for tests of the
 * attribution of samples.
 *
 *	mapper: maps the images in turn at MAP_ADDRESS and runs each; replaces the last one
 *	directly or after a munmap
 *	forker: the same, but each image is run by a new child, which inherits it while the
 *	parent maps the next one
 *	execer: runs the programs in turn, all linked to the same address; one of them runs for
 *	5 ms
 *
 * Images are /bin/alpha, beta, gamma, delta; programs are /bin/one, two, three, brief:
 * tests/rig/guest/spin.S. Prints "remap: begin", and at the end "remap: mapped N forked N executed
 * N" and "remap: shortest lifetime N us".
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/rig/guest/guest_program.h"

#define MAP_ADDRESS ((char *)0x600000000000)
#define PAGE        4096
#define SPINS       400000l /* some 20 ms in the rig */

struct image {
	const char *path;
	unsigned int place; /* offset of its function in the page */
};

static const struct image images[] = {
	{ "/bin/alpha", 0x100 },
	{ "/bin/beta", 0x200 },
	{ "/bin/gamma", 0x300 },
	{ "/bin/delta", 0x400 },
};
static char *const programs[] = { "/bin/one", "/bin/two", "/bin/three", "/bin/brief" };
#define PROGRAMS (sizeof(programs) / sizeof(programs[0]))

/* The code is the second page of the file. */
static void map(const struct image *image)
{
	int file = open(image->path, O_RDONLY);
	void *mapped =
		mmap(MAP_ADDRESS, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file, PAGE);

	check(file >= 0 && mapped == MAP_ADDRESS, image->path);
	close(file);
}

static void spin(const struct image *image)
{
	((void (*)(long))(MAP_ADDRESS + image->place))(SPINS);
}

static long run_mapper(double end)
{
	long count = 0;

	for (; now() < end; count++) {
		const struct image *image = &images[count % 4];

		map(image);
		spin(image);
		if (count % 3 == 0)
			munmap(MAP_ADDRESS, PAGE);
	}
	return count;
}

static long run_forker(double end)
{
	pid_t last = -1;
	long count = 0;

	for (; now() < end; count++) {
		const struct image *image = &images[(count + 2) % 4];
		pid_t child;

		map(image);
		child = fork();
		if (!child) {
			spin(image);
			_exit(0);
		}
		check(child > 0, "fork");
		if (last > 0)
			waitpid(last, NULL, 0);
		last = child;
	}
	waitpid(last, NULL, 0);
	return count;
}

static void execute(char *program)
{
	pid_t child = vfork();

	if (!child) {
		execl(program, program, NULL);
		_exit(127);
	}
	check(child > 0, "vfork");
	waitpid(child, NULL, 0);
}

static long run_execer(double end)
{
	double before = now(), shortest = 1e9;
	long count = 0;

	for (; before < end; count++) {
		double after;

		execute(programs[count % PROGRAMS]);
		after = now();
		shortest = after - before < shortest ? after - before : shortest;
		before = after;
	}
	printf("remap: shortest lifetime %.0f us\n", shortest * 1e6);
	fflush(stdout);
	return count;
}

static int start(const char *name, long (*run)(double), double end, int result)
{
	pid_t child = fork();
	long count;

	check(child >= 0, "fork");
	if (child)
		return child;
	prctl(PR_SET_NAME, name);
	count = run(end);
	check(write(result, &count, sizeof(count)) == sizeof(count), "write");
	exit(0);
}

static long result_of(int *ends)
{
	long count = -1;

	close(ends[1]);
	if (read(ends[0], &count, sizeof(count)) != sizeof(count))
		fprintf(stderr, "remap: a process failed\n");
	return count;
}

int main(int argc, char **argv)
{
	double end = now() + (argc > 1 ? atof(argv[1]) : 5);
	int pipes[3][2];

	for (int i = 0; i < 3; i++)
		check(!pipe(pipes[i]), "pipe");
	printf("remap: begin\n");
	fflush(stdout);
	start("mapper", run_mapper, end, pipes[0][1]);
	start("forker", run_forker, end, pipes[1][1]);
	start("execer", run_execer, end, pipes[2][1]);
	printf("remap: mapped %ld", result_of(pipes[0]));
	printf(" forked %ld", result_of(pipes[1]));
	printf(" executed %ld\n", result_of(pipes[2]));
	return 0;
}
