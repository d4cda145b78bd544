/* SPDX-License-Identifier: Apache-2.0 */
/* CPU time of samples, with vCPUs run by this thread: its time is real. */
#include "vmm/attach/qmp_samples.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/shim/test.h"

/* QEMU's output for vCPU ID, at an address of its own, HALTED or not. */
#define VCPU(id, halted)                                                                           \
	"\nCPU#" #id                                                                               \
	"\r\nRAX=0 RBX=0 RCX=0 RDX=0\r\nRSI=0 RDI=0 RBP=0 RSP=0\r\nR8 =0 R9 =0 R10=0 R11=0\r\n"    \
	"R12=0 R13=0 R14=0 R15=0\r\n"                                                              \
	"RIP=ffffffff8100000" #id " RFL=00000206 [-----P-] CPL=0 II=0 A20=1 SMM=0 HLT=" #halted    \
	"\r\n"                                                                                     \
	"CS =0010 0000000000000000 ffffffff 00af9b00 DPL=0 CS64 [-RA]\r\n"                         \
	"GS =0000 ffff8cd70f800000 00000000 00000000\r\n"                                          \
	"GDT=     fffffe0000001000 0000007f\r\nIDT=     fffffe0000000000 00000fff\r\n"             \
	"CR0=80050033 CR2=0000000000000000 CR3=0000000001234000 CR4=000006f0\r\nEFER=0000000000000d01\r\n"

#define TAKEN 16 /* the maximum of waiting samples of two vCPUs */

static struct qmp_samples samples;
static struct vmm_process *process;

static uint64_t used(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void add(unsigned int id)
{
	CHECK_EQUAL(qmp_samples_add_vcpu(&samples, process,
					 &(struct vmm_vcpu){ .id = id, .tid = gettid() }),
		    0);
}

static void make(void)
{
	memset(&samples, 0, sizeof(samples));
	REQUIRE_EQUAL(vmm_process_open_monitored(&process, getpid()), 0);
	add(0);
	add(1);
}

static void unmake(void)
{
	qmp_samples_free(&samples);
	vmm_process_close(process);
}

/* Reads both until some samples have their time. Returns their number. */
static size_t read_text(const char *text, struct qmp_sample samples_read[TAKEN])
{
	uint64_t lost;
	size_t count;

	do
		qmp_samples_add_text(&samples, text, 5);
	while (!(count = qmp_samples_consume(&samples, samples_read, TAKEN, &lost)));
	return count;
}

static uint64_t sum_of(const struct qmp_sample *samples_read, size_t count, unsigned int id)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += samples_read[i].id == id ? samples_read[i].period : 0;
	return sum;
}

TEST(qmp_samples, of_one_thread_share_its_time)
{
	struct qmp_sample samples_read[TAKEN];
	size_t count;

	make();
	count = read_text(VCPU(0, 0) VCPU(1, 0), samples_read);
	CHECK(count >= 2);
	CHECK(sum_of(samples_read, count, 0) > 0);
	CHECK_EQUAL(sum_of(samples_read, count, 0), sum_of(samples_read, count, 1));
	CHECK(2 * sum_of(samples_read, count, 0) <= used());
	CHECK_EQUAL(samples_read[0].time, 5);
	CHECK_EQUAL(samples_read[0].registers.rip, 0xffffffff81000000 + samples_read[0].id);
	unmake();
}

TEST(qmp_samples, exclude_halted_vcpus)
{
	struct qmp_sample samples_read[TAKEN];
	size_t count;

	make();
	count = read_text(VCPU(0, 0) VCPU(1, 1), samples_read);
	CHECK(sum_of(samples_read, count, 0) > 0);
	CHECK_EQUAL(sum_of(samples_read, count, 1), 0);
	unmake();
}

/* CPU time without reads is counted as lost samples. */
TEST(qmp_samples, missed_ones_are_lost)
{
	uint64_t lost = 0, begun = used();
	struct qmp_sample samples_read[TAKEN];

	make();
	while (used() - begun < 20000000)
		;
	/* The kernel updates the time of a running thread once per tick. */
	for (uint64_t lost_now; lost < 10; lost += lost_now) {
		qmp_samples_count_gap(&samples, 1000000);
		CHECK_EQUAL(qmp_samples_consume(&samples, samples_read, TAKEN, &lost_now), 0);
	}
	CHECK(lost <= 2 * used() / 1000000);
	unmake();
}

TEST(qmp_samples, are_lost_when_the_queue_is_full)
{
	struct qmp_sample samples_read[TAKEN];
	uint64_t lost = 0;

	make();
	samples.queued = QMP_SAMPLES_QUEUE;
	while (!samples.lost)
		qmp_samples_add_text(&samples, VCPU(0, 0), 5);
	CHECK_EQUAL(qmp_samples_consume(&samples, samples_read, TAKEN, &lost), TAKEN);
	CHECK(lost > 0);
	qmp_samples_remove_vcpu(&samples, 0);
	CHECK_EQUAL(samples.count, 1);
	CHECK_EQUAL(qmp_samples_add_vcpu(&samples, process,
					 &(struct vmm_vcpu){ .id = 2, .tid = 0x7ffffff }),
		    -ESRCH);
	unmake();
}
