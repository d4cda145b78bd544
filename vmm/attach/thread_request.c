/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/thread_request.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

int request_open(struct request *request)
{
	*request = (struct request){ .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) };
	if (request->fd < 0)
		return error_set(-errno, "cannot create an eventfd: %s", strerror(errno));
	pthread_mutex_init(&request->lock, NULL);
	pthread_cond_init(&request->answered, NULL);
	return 0;
}

void request_close(struct request *request)
{
	pthread_cond_destroy(&request->answered);
	pthread_mutex_destroy(&request->lock);
	close(request->fd);
}

/* With the lock. A later answer counts, too: it is for the latest request. */
static int wait_for_answer(struct request *request, uint64_t number)
{
	while (request->answers < number && !request->ended)
		pthread_cond_wait(&request->answered, &request->lock);
	if (request->answers < number)
		return error_set(-ECANCELED, "sampling has ended");
	return request->error ? error_set(request->error, "%s", request->text) : 0;
}

int request_send(struct request *request, const unsigned int *frequency)
{
	uint64_t number;
	int error;

	pthread_mutex_lock(&request->lock);
	number = ++request->asked;
	if (frequency)
		request->frequency = *frequency;
	eventfd_write(request->fd, 1);
	error = wait_for_answer(request, number);
	pthread_mutex_unlock(&request->lock);
	return error;
}

bool request_receive(struct request *request, unsigned int *frequency)
{
	eventfd_t count;

	if (eventfd_read(request->fd, &count))
		return false;
	pthread_mutex_lock(&request->lock);
	request->taken = request->asked;
	*frequency = request->frequency;
	pthread_mutex_unlock(&request->lock);
	return true;
}

void request_answer(struct request *request, int error)
{
	pthread_mutex_lock(&request->lock);
	request->answers = request->taken;
	request->error = error;
	snprintf(request->text, sizeof(request->text), "%s", error ? error_message() : "");
	pthread_cond_broadcast(&request->answered);
	pthread_mutex_unlock(&request->lock);
}

void request_end(struct request *request)
{
	pthread_mutex_lock(&request->lock);
	request->ended = true;
	pthread_cond_broadcast(&request->answered);
	pthread_mutex_unlock(&request->lock);
}
