/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/devices/event_loop.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/thread_start.h"

#define EVENTS_AT_ONCE 16

/* Watches are identified by an id, not by fd or pointer: an event already delivered by
 * epoll_wait() may belong to a removed watch whose fd number has been reused. */
struct watch {
	struct watch *next;
	uint64_t id;
	int fd;
	event_handler *handler;
	void *context;
};

#define STOP_ID 0

/* lock protects watches, next_id and running_fd. The handler runs without the lock and with
 * running_fd set; handler_done signals its end. */
struct event_loop {
	int epoll_fd;
	int stop_fd;
	pthread_t thread;
	bool thread_started;
	pthread_mutex_t lock;
	pthread_cond_t handler_done;
	struct watch *watches;
	uint64_t next_id;
	int running_fd; /* of the running handler; -1 if none */
};

static struct watch **find_by_fd(struct event_loop *loop, int fd)
{
	struct watch **link = &loop->watches;

	while (*link && (*link)->fd != fd)
		link = &(*link)->next;
	return link;
}

static struct watch *find_by_id(struct event_loop *loop, uint64_t id)
{
	struct watch *watch = loop->watches;

	while (watch && watch->id != id)
		watch = watch->next;
	return watch;
}

/* The handler may remove its own watch, so the watch is not used after the call. */
static void run_handler(struct event_loop *loop, const struct epoll_event *event)
{
	event_handler *handler;
	struct watch *watch;
	void *context;
	int fd;

	pthread_mutex_lock(&loop->lock);
	watch = find_by_id(loop, event->data.u64);
	if (!watch) {
		pthread_mutex_unlock(&loop->lock);
		return;
	}
	handler = watch->handler;
	context = watch->context;
	fd = watch->fd;
	loop->running_fd = fd;
	pthread_mutex_unlock(&loop->lock);

	handler(context, fd, event->events);

	pthread_mutex_lock(&loop->lock);
	loop->running_fd = -1;
	pthread_cond_broadcast(&loop->handler_done);
	pthread_mutex_unlock(&loop->lock);
}

static void *run_loop(void *argument)
{
	struct event_loop *loop = argument;
	struct epoll_event events[EVENTS_AT_ONCE];

	for (;;) {
		int count = epoll_wait(loop->epoll_fd, events, EVENTS_AT_ONCE, -1);

		assert(count >= 0 || errno == EINTR);
		for (int i = 0; i < count; i++) {
			if (events[i].data.u64 == STOP_ID)
				return NULL;
			run_handler(loop, &events[i]);
		}
	}
}

static int start_thread(struct event_loop *loop)
{
	int error = thread_start(&loop->thread, "devices", run_loop, loop);

	if (error)
		return error_set(error, "cannot start the devices' thread: %s", strerror(-error));
	loop->thread_started = true;
	return 0;
}

static int open_files(struct event_loop *loop)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = STOP_ID };

	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (loop->epoll_fd < 0)
		return error_set(-errno, "cannot create an epoll instance: %m");
	loop->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (loop->stop_fd < 0)
		return error_set(-errno, "cannot create an eventfd: %m");
	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->stop_fd, &event))
		return error_set(-errno, "cannot watch an eventfd: %m");
	return 0;
}

int event_loop_create(struct event_loop **result)
{
	struct event_loop *loop = calloc(1, sizeof(*loop));
	int error;

	*result = NULL;
	if (!loop)
		return error_set(-ENOMEM, "no memory for the devices' event loop");
	loop->epoll_fd = -1;
	loop->stop_fd = -1;
	loop->running_fd = -1;
	loop->next_id = STOP_ID + 1;
	pthread_mutex_init(&loop->lock, NULL);
	pthread_cond_init(&loop->handler_done, NULL);
	error = open_files(loop);
	if (!error)
		error = start_thread(loop);
	if (error)
		event_loop_destroy(loop);
	else
		*result = loop;
	return error;
}

static void stop_thread(struct event_loop *loop)
{
	uint64_t one = 1;
	ssize_t written = write(loop->stop_fd, &one, sizeof(one));

	assert(written == sizeof(one));
	(void)written;
	pthread_join(loop->thread, NULL);
}

void event_loop_destroy(struct event_loop *loop)
{
	if (!loop)
		return;
	assert(!event_loop_on_thread(loop));
	if (loop->thread_started)
		stop_thread(loop);
	while (loop->watches) {
		struct watch *watch = loop->watches;

		loop->watches = watch->next;
		free(watch);
	}
	if (loop->stop_fd >= 0)
		close(loop->stop_fd);
	if (loop->epoll_fd >= 0)
		close(loop->epoll_fd);
	pthread_cond_destroy(&loop->handler_done);
	pthread_mutex_destroy(&loop->lock);
	free(loop);
}

/* With the lock held. */
static int add_watch(struct event_loop *loop, int fd, uint32_t events, event_handler *handler,
		     void *context)
{
	struct epoll_event event = { .events = events, .data.u64 = loop->next_id };
	struct watch *watch;

	if (*find_by_fd(loop, fd))
		return error_set(-EEXIST, "file descriptor %d is already watched", fd);
	watch = malloc(sizeof(*watch));
	if (!watch)
		return error_set(-ENOMEM, "no memory to watch file descriptor %d", fd);
	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event)) {
		int error = errno;

		free(watch);
		return error_set(-error, "cannot wait for file descriptor %d: %s", fd,
				 strerror(error));
	}
	*watch = (struct watch){ .next = loop->watches,
				 .id = loop->next_id++,
				 .fd = fd,
				 .handler = handler,
				 .context = context };
	loop->watches = watch;
	return 0;
}

int event_loop_add(struct event_loop *loop, int fd, uint32_t events, event_handler *handler,
		   void *context)
{
	int error;

	pthread_mutex_lock(&loop->lock);
	error = add_watch(loop, fd, events, handler, context);
	pthread_mutex_unlock(&loop->lock);
	return error;
}

int event_loop_modify(struct event_loop *loop, int fd, uint32_t events)
{
	struct epoll_event event = { .events = events };
	struct watch *watch;
	int error = 0;

	pthread_mutex_lock(&loop->lock);
	watch = *find_by_fd(loop, fd);
	if (!watch) {
		error = error_set(-ENOENT, "file descriptor %d is not watched", fd);
	} else {
		event.data.u64 = watch->id;
		if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, fd, &event))
			error = error_set(-errno, "cannot wait for file descriptor %d: %m", fd);
	}
	pthread_mutex_unlock(&loop->lock);
	return error;
}

/* Also waits if there is no watch: a handler that removed its own may still be running. */
void event_loop_remove(struct event_loop *loop, int fd)
{
	struct watch **link, *watch;

	pthread_mutex_lock(&loop->lock);
	link = find_by_fd(loop, fd);
	watch = *link;
	if (watch) {
		*link = watch->next;
		free(watch);
		epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
	}
	while (loop->running_fd == fd && !event_loop_on_thread(loop))
		pthread_cond_wait(&loop->handler_done, &loop->lock);
	pthread_mutex_unlock(&loop->lock);
}

bool event_loop_on_thread(const struct event_loop *loop)
{
	return loop->thread_started && pthread_equal(loop->thread, pthread_self());
}
