/* SPDX-License-Identifier: Apache-2.0 */
/* The devices' thread: one epoll loop, which runs one handler at a time. */
#ifndef KVMSCOPE_DEVICES_EVENT_LOOP_H
#define KVMSCOPE_DEVICES_EVENT_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct event_loop;

/* EVENTS as of epoll_wait(2). On the loop's thread; should not block. */
typedef void event_handler(void *context, int fd, uint32_t events);

/* Creates the loop and its thread (all signals blocked). The errors of epoll, eventfd and
 * threads. Any thread. */
int event_loop_create(struct event_loop **loop);
/* Ends and joins the thread, and removes all watches. Not on the loop's thread. NULL is a no-op. */
void event_loop_destroy(struct event_loop *loop);

/* Watches FD (not owned) for EVENTS. -EEXIST if it is already watched, -EPERM if epoll does not
 * support it (a regular file). Any thread. */
int event_loop_add(struct event_loop *loop, int fd, uint32_t events, event_handler *handler,
		   void *context);
/* -ENOENT if FD is not watched. Any thread. */
int event_loop_modify(struct event_loop *loop, int fd, uint32_t events);
/*
 * After it returns the handler does not run any longer, except if that handler itself calls this on
 * the loop's thread. FD need not be watched: a handler that removed its own watch is waited for
 * too. Call it before FD is closed. Any thread; on other threads than the loop's, without a lock
 * that the handler takes.
 */
void event_loop_remove(struct event_loop *loop, int fd);

/* True on the loop's thread. For assertions. */
bool event_loop_on_thread(const struct event_loop *loop);

#endif
