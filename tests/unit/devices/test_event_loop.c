/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"
#include "vmm/devices/event_loop.h"

struct watched {
	struct event_loop *loop;
	sem_t entered, leave;
	atomic_int runs;
	atomic_bool inside, on_thread;
};

static void setup(struct watched *watched, struct event_loop *loop)
{
	*watched = (struct watched){ .loop = loop };
	sem_init(&watched->entered, 0, 0);
	sem_init(&watched->leave, 0, 0);
}

static void raise_event(int fd)
{
	uint64_t one = 1;

	CHECK_EQUAL(write(fd, &one, sizeof(one)), sizeof(one));
}

static void drain(int fd)
{
	uint64_t count;

	CHECK_EQUAL(read(fd, &count, sizeof(count)), sizeof(count));
}

static void count_run(void *context, int fd, uint32_t events)
{
	struct watched *watched = context;

	drain(fd);
	atomic_store(&watched->on_thread, event_loop_on_thread(watched->loop));
	atomic_fetch_add(&watched->runs, 1);
	sem_post(&watched->entered);
}

TEST(event_loop, runs_handlers_on_its_thread)
{
	struct event_loop *loop;
	struct watched watched;
	int fd = eventfd(0, EFD_NONBLOCK);

	REQUIRE_EQUAL(event_loop_create(&loop), 0);
	setup(&watched, loop);
	CHECK_EQUAL(event_loop_add(loop, fd, EPOLLIN, count_run, &watched), 0);
	CHECK_EQUAL(event_loop_add(loop, fd, EPOLLIN, count_run, &watched), -EEXIST);
	raise_event(fd);
	sem_wait(&watched.entered);
	CHECK(atomic_load(&watched.on_thread));
	CHECK(!event_loop_on_thread(loop));
	event_loop_destroy(loop);
	close(fd);
}

TEST(event_loop, changes_what_is_waited_for)
{
	struct event_loop *loop;
	struct watched watched;
	int fd = eventfd(0, EFD_NONBLOCK);

	REQUIRE_EQUAL(event_loop_create(&loop), 0);
	setup(&watched, loop);
	CHECK_EQUAL(event_loop_modify(loop, fd, EPOLLIN), -ENOENT);
	CHECK_EQUAL(event_loop_add(loop, fd, 0, count_run, &watched), 0);
	raise_event(fd);
	CHECK_EQUAL(event_loop_modify(loop, fd, EPOLLIN), 0);
	sem_wait(&watched.entered);
	event_loop_destroy(loop);
	close(fd);
}

TEST(event_loop, refuses_files_that_epoll_refuses)
{
	struct event_loop *loop;
	struct watched watched;
	int fd = open("/proc/self/exe", O_RDONLY);

	REQUIRE_EQUAL(event_loop_create(&loop), 0);
	setup(&watched, loop);
	CHECK_EQUAL(event_loop_add(loop, fd, EPOLLIN, count_run, &watched), -EPERM);
	event_loop_remove(loop, fd);
	CHECK_EQUAL(event_loop_add(loop, -1, EPOLLIN, count_run, &watched), -EBADF);
	event_loop_destroy(loop);
	event_loop_destroy(NULL);
	close(fd);
}

static void stay_inside(void *context, int fd, uint32_t events)
{
	struct watched *watched = context;

	drain(fd);
	atomic_store(&watched->inside, true);
	sem_post(&watched->entered);
	sem_wait(&watched->leave);
	atomic_store(&watched->inside, false);
}

static void *let_go(void *context)
{
	struct watched *watched = context;

	usleep(10000);
	sem_post(&watched->leave);
	return NULL;
}

/* Lets a device free itself: after the removal its handler is not running. */
TEST(event_loop, removal_waits_for_a_running_handler)
{
	struct event_loop *loop;
	struct watched watched;
	int fd = eventfd(0, EFD_NONBLOCK);
	pthread_t thread;

	REQUIRE_EQUAL(event_loop_create(&loop), 0);
	setup(&watched, loop);
	REQUIRE_EQUAL(event_loop_add(loop, fd, EPOLLIN, stay_inside, &watched), 0);
	raise_event(fd);
	sem_wait(&watched.entered);
	REQUIRE_EQUAL(pthread_create(&thread, NULL, let_go, &watched), 0);
	event_loop_remove(loop, fd);
	CHECK(!atomic_load(&watched.inside));
	pthread_join(thread, NULL);
	event_loop_destroy(loop);
	close(fd);
}

static void remove_itself(void *context, int fd, uint32_t events)
{
	struct watched *watched = context;

	event_loop_remove(watched->loop, fd);
	atomic_fetch_add(&watched->runs, 1);
	sem_post(&watched->entered);
}

TEST(event_loop, handlers_may_remove_themselves)
{
	struct event_loop *loop;
	struct watched gone, other;
	int fd = eventfd(1, EFD_NONBLOCK), other_fd = eventfd(0, EFD_NONBLOCK);

	REQUIRE_EQUAL(event_loop_create(&loop), 0);
	setup(&gone, loop);
	setup(&other, loop);
	REQUIRE_EQUAL(event_loop_add(loop, other_fd, EPOLLIN, count_run, &other), 0);
	REQUIRE_EQUAL(event_loop_add(loop, fd, EPOLLIN, remove_itself, &gone), 0);
	sem_wait(&gone.entered);
	raise_event(other_fd); /* fd is still readable: the handler would run again before this one
				  ends */
	sem_wait(&other.entered);
	CHECK_EQUAL(atomic_load(&gone.runs), 1);
	CHECK_EQUAL(event_loop_add(loop, fd, EPOLLIN, remove_itself, &gone), 0);
	sem_wait(&gone.entered);
	event_loop_destroy(loop);
	close(fd);
	close(other_fd);
}

/* Events of a removed watch must not reach a new one with the same fd number. */
TEST(event_loop, adds_and_removes_under_fire)
{
	struct event_loop *loop;
	int fd = eventfd(1, EFD_NONBLOCK);

	REQUIRE_EQUAL(event_loop_create(&loop), 0);
	for (int i = 0; i < 500; i++) {
		struct watched watched;

		setup(&watched, loop);
		CHECK_EQUAL(event_loop_add(loop, fd, EPOLLIN, remove_itself, &watched), 0);
		if (i % 2)
			sem_wait(&watched.entered);
		event_loop_remove(loop, fd);
		memset(&watched, 0xff,
		       sizeof(watched)); /* a handler that still runs would crash on this */
	}
	event_loop_destroy(loop);
	close(fd);
}
