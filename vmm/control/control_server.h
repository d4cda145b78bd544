/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket of a run or of kvmscoped (docs/control-protocol.md). Its only command of its
 * own is "commands"; each part that can be controlled adds its commands.
 *
 *	control_create, add, start, destroy	one thread, in this order
 *	the commands				the control thread
 *
 * The control thread blocks signals and serves up to CONTROL_CLIENTS_MAX clients without waiting
 * for any: sockets are non-blocking, requests have a bounded length, and nothing is read from a
 * client that does not read its answer. It is not the devices' thread, so neither a slow client nor
 * a slow command delays the guest.
 */
#ifndef KVMSCOPE_CONTROL_CONTROL_SERVER_H
#define KVMSCOPE_CONTROL_CONTROL_SERVER_H

#include <jansson.h>

#define CONTROL_CLIENTS_MAX  8
#define CONTROL_COMMANDS_MAX 32

struct control;

/*
 * Runs a command. ARGUMENTS is an object as the client sent it: parse it by json_unpack_ex() in
 * its strict form ("{s:i !}") or control_no_arguments(), so that unknown members are refused.
 * RESULT is an empty object for the answer's members. Both belong to the caller. Returns 0, or a
 * negative errno with its message, which is the answer then. On the control thread; other clients
 * wait meanwhile.
 */
typedef int control_command(void *context, json_t *arguments, json_t *result);

/* -ENOMEM. */
int control_create(struct control **control);

/* Before control_start(). Asserts that NAME (not copied) is new and that at most
 * CONTROL_COMMANDS_MAX commands are added. */
void control_add(struct control *control, const char *name, control_command *run, void *context);

/* Starts the thread on LISTENER, a listening socket that stays the caller's. The errors of
 * eventfd(2) and pthread_create(). */
int control_start(struct control *control, int listener);

/* Ends the thread after the current command and closes all connections. NULL is a no-op. */
void control_destroy(struct control *control);

/* -EINVAL unless ARGUMENTS is empty. */
int control_no_arguments(const json_t *arguments);

#endif
