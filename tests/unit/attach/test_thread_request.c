/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the attach thread: each gets an answer that is not older than the request. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "tests/unit/shim/test.h"
#include "vmm/attach/thread_request.h"

#define ASKERS 4
#define ROUNDS 500

/* Answers until END_FREQUENCY is requested, which is not answered. */
#define END_FREQUENCY   77777
#define WRONG_FREQUENCY 66666

static unsigned int current;

static void *answer_all(void *context)
{
	struct request *request = context;
	struct pollfd asked = { .fd = request->fd, .events = POLLIN };
	unsigned int frequency = 0;

	while (frequency != END_FREQUENCY) {
		poll(&asked, 1, -1);
		if (!request_receive(request, &frequency) || frequency == END_FREQUENCY)
			continue;
		__atomic_store_n(&current, frequency, __ATOMIC_RELEASE);
		request_answer(request, frequency == WRONG_FREQUENCY
						? error_set(-EINVAL, "no such frequency")
						: 0);
	}
	request_end(request);
	return NULL;
}

static void *ask_often(void *context)
{
	struct request *request = context;
	uint64_t failed = 0;

	for (int i = 0; i < ROUNDS; i++)
		failed += request_send(request, NULL) != 0;
	return (void *)failed;
}

TEST(request, each_request_gets_its_answer)
{
	unsigned int frequency = 99, wrong = WRONG_FREQUENCY, end = END_FREQUENCY;
	pthread_t thread, askers[ASKERS];
	struct request request;
	void *failed;

	REQUIRE_EQUAL(request_open(&request), 0);
	pthread_create(&thread, NULL, answer_all, &request);
	CHECK_EQUAL(request_send(&request, &frequency), 0);
	CHECK_EQUAL(__atomic_load_n(&current, __ATOMIC_ACQUIRE), 99);
	for (int i = 0; i < ASKERS; i++)
		pthread_create(&askers[i], NULL, ask_often, &request);
	for (frequency = 100; frequency < 100 + ROUNDS; frequency++) {
		CHECK_EQUAL(request_send(&request, &frequency), 0);
		CHECK_EQUAL(__atomic_load_n(&current, __ATOMIC_ACQUIRE), frequency);
	}
	for (int i = 0; i < ASKERS; i++) {
		pthread_join(askers[i], &failed);
		CHECK_EQUAL((uintptr_t)failed, 0);
	}
	CHECK_EQUAL(request_send(&request, &wrong), -EINVAL);
	CHECK(strstr(error_message(), "no such frequency"));
	CHECK_EQUAL(request_send(&request, &end), -ECANCELED);
	pthread_join(thread, NULL);
	CHECK_EQUAL(request_send(&request, NULL), -ECANCELED);
	request_close(&request);
}
