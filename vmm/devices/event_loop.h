/* SPDX-License-Identifier: Apache-2.0 */
/* The devices' thread: one epoll loop, handlers run on it one at a time. */
#ifndef KVMSCOPE_DEVICES_EVENT_LOOP_H
#define KVMSCOPE_DEVICES_EVENT_LOOP_H

#include <stdint.h>

struct event_loop;

/* EVENTS as of epoll_wait(). On the loop's thread. */
typedef void event_handler(void *context, int fd, uint32_t events);

/* Makes the loop and its thread (all signals blocked). Any thread. */
int event_loop_create(struct event_loop **loop);
/* Ends and joins the thread. Not on the loop's thread. Works on NULL. */
void event_loop_destroy(struct event_loop *loop);

/* Watches FD (not owned) for EVENTS; -EEXIST if it is watched. Any thread. */
int event_loop_add(struct event_loop *loop, int fd, uint32_t events, event_handler *handler, void *context);
int event_loop_modify(struct event_loop *loop, int fd, uint32_t events);
/* Once it returns the handler does not run any more, unless called by that handler itself. Any thread. */
void event_loop_remove(struct event_loop *loop, int fd);

#endif
