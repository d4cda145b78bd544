/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to the attach thread that wait for an answer: to scan for vCPUs, or to change the
 * frequency.
 *
 *	request_send()			any other thread
 *	_receive, _answer, _end		the attach thread
 */
#ifndef KVMSCOPE_ATTACH_THREAD_REQUEST_H
#define KVMSCOPE_ATTACH_THREAD_REQUEST_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "shared/error.h"

struct request {
	int fd; /* for poll(): readable while a request was not received */
	pthread_mutex_t lock;
	pthread_cond_t answered;
	/* With the lock. */
	uint64_t asked, answers; /* numbers of the latest ones */
	unsigned int frequency;  /* Hz, requested last; 0: pause */
	bool ended;
	int error; /* of the latest answer */
	char text[ERROR_MESSAGE_SIZE];
	/* The attach thread's. */
	uint64_t taken;
};

/* The errors of eventfd(), with the message; nothing has to be closed then. */
int request_open(struct request *request);
/* Only after a successful request_open(), when no thread uses it any longer. */
void request_close(struct request *request);

/* Waits for the answer: 0, or its error with the message; -ECANCELED, with the message: the
 * thread ends without an answer. FREQUENCY: the new one; NULL: unchanged. */
int request_send(struct request *request, const unsigned int *frequency);

/* True if there is a request: FREQUENCY gets the current one. request_answer() has to follow. */
bool request_receive(struct request *request, unsigned int *frequency);

/* Answers all requests before request_receive(). ERROR is 0, or its message is set. */
void request_answer(struct request *request, int error);

/* Cancels all requests from now on. */
void request_end(struct request *request);

#endif
