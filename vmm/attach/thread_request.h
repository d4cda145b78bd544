/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What others ask of the thread of an attachment, and wait for: that it looks for vCPUs now, that
 *it samples with another frequency.
 *
 *	request_send()		any other thread
 *	_take, _answer, _end	the thread that is asked
 */
#ifndef KVMSCOPE_ATTACH_THREAD_REQUEST_H
#define KVMSCOPE_ATTACH_THREAD_REQUEST_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "shared/error.h"

struct request {
	int fd; /* can be polled: readable while something is asked that was not taken */
	pthread_mutex_t lock;
	pthread_cond_t answered;
	/* With the lock. */
	uint64_t asked, answers; /* numbers of the latest */
	unsigned int frequency;  /* Hz that is wanted; 0: a pause */
	bool ended;
	int error; /* of the latest answer */
	char text[ERROR_MESSAGE_SIZE];
	/* The thread's. */
	uint64_t taken;
};

/* The errors of eventfd(), with the message; then there is nothing to close. */
int request_open(struct request *request);
/* Of one that was opened, once nobody asks or answers any more. */
void request_close(struct request *request);

/*
 * Comes back with the answer: 0, or its error with the message; -ECANCELED, with the message, where
 * there is none as the thread ends. FREQUENCY is what is wanted from now on; NULL: as before.
 */
int request_send(struct request *request, const unsigned int *frequency);

/* Something is asked: FREQUENCY becomes what is wanted now. request_answer() is to follow. */
bool request_receive(struct request *request, unsigned int *frequency);

/* To all that was asked before request_receive(). ERROR is 0, or has its message set. */
void request_answer(struct request *request, int error);

/* Nothing is answered from now on. */
void request_end(struct request *request);

#endif
