/* SPDX-License-Identifier: Apache-2.0 */
/* The devices' thread: one epoll loop, handlers run on it one at a time. */
#ifndef KVMSCOPE_DEVICES_EVENT_LOOP_H
#define KVMSCOPE_DEVICES_EVENT_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct event_loop;

/* EVENTS as of epoll_wait(2). On the loop's thread; should not block. */
typedef void event_handler(void *context, int fd, uint32_t events);

/* Makes the loop and its thread (all signals blocked). The errors of epoll, eventfd, threads. Any
 * thread. */
int event_loop_create(struct event_loop **loop);
/* Ends and joins the thread, forgets all watches. Not on the loop's thread. Works on NULL. */
void event_loop_destroy(struct event_loop *loop);

/*
 * Watches FD (not owned) for EVENTS; -EEXIST if it is watched, -EPERM if it
 * can not be waited for (a regular file). Any thread.
 */
int event_loop_add(struct event_loop *loop, int fd, uint32_t events, event_handler *handler,
		   void *context);
/* -ENOENT if FD is not watched. Any thread. */
int event_loop_modify(struct event_loop *loop, int fd, uint32_t events);
/*
 * Once it returns the handler does not run any more, unless called on the
 * loop's thread by that handler itself. FD need not be watched: a handler that
 * removed its own watch is waited for all the same. To be called before FD is
 * closed. Any thread; elsewhere than on the loop's thread hold no lock that
 * the handler takes.
 */
void event_loop_remove(struct event_loop *loop, int fd);

/* Is the caller the loop's thread? For assertions. */
bool event_loop_on_thread(const struct event_loop *loop);

#endif
