/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket of a run: others pause it, change it, ask it, as
 * docs/control-protocol.md says. It knows no command but "commands" itself:
 * whoever has something to control adds one.
 *
 *	control_create, add, start, destroy	one thread, in this order
 *	the commands				the control thread
 *
 * The control thread has signals blocked, serves at most CONTROL_CLIENTS_MAX
 * clients, and waits for none of them: their sockets are non-blocking, a
 * request has a bounded length, a client that does not read its answer is not
 * read from. It is a thread of its own, not the devices', so that neither a
 * slow client nor a command that takes its time holds up the guest.
 */
#ifndef KVMSCOPE_CONTROL_CONTROL_SERVER_H
#define KVMSCOPE_CONTROL_CONTROL_SERVER_H

#include <jansson.h>

#define CONTROL_CLIENTS_MAX  8
#define CONTROL_COMMANDS_MAX 32

struct control;

/*
 * Does what is asked for. ARGUMENTS is an object as the client sent it: read
 * it by json_unpack_ex() in its strict form ("{s:i !}"), or
 * control_no_arguments(), so that what is not known is refused. RESULT is an
 * empty object to put the answer's members in. Both are the caller's. 0, or a
 * negative errno with its message, which is the answer then. On the control
 * thread; other clients wait meanwhile.
 */
typedef int control_command(void *context, json_t *arguments, json_t *result);

/* -ENOMEM. */
int control_create(struct control **control);

/* Before control_start(). NAME (not copied) is new, and at most CONTROL_COMMANDS_MAX are added:
 * asserted. */
void control_add(struct control *control, const char *name, control_command *run, void *context);

/* Starts the thread on LISTENER, a listening socket (not owned). The errors of eventfd and threads.
 */
int control_start(struct control *control, int listener);

/* Ends the thread, after the command that it is at; clients are cut off. Works on NULL. */
void control_destroy(struct control *control);

/* -EINVAL unless ARGUMENTS is empty. */
int control_no_arguments(const json_t *arguments);

#endif
