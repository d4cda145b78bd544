/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/resolve/resolver_order.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shared/array.h"

#define BLOCK_SIZE (128ul << 10)
/* Items; larger arrays, which a burst needed, are freed afterwards. */
#define KEPT_MAX 65536u
#define SAMPLE   (1ull << 63) /* in a number */
/* Cost of a record besides itself: an item in an array with room for twice as many. */
#define ITEM_COST (2 * sizeof(struct resolver_order_item))

/* Records of one source, in a row; reusable when the last one is dropped. */
struct resolver_order_block {
	struct resolver_order_block *next; /* spare */
	size_t used, waiting;              /* bytes; records */
	bool of_sideband;                  /* not kept when empty, as it is charged to the guest */
	uint8_t bytes[] __attribute__((aligned(8)));
};

/* A ring of COUNT items from FIRST on. */
struct resolver_order_queue {
	struct resolver_order_item *items;
	size_t first, count, capacity;      /* a power of two */
	struct resolver_order_block *block; /* being filled */
};

static bool is_before(const struct resolver_order_item *a, const struct resolver_order_item *b)
{
	return a->time != b->time ? a->time < b->time : a->number < b->number;
}

/* --- heaps ------------------------------------------------------------------------ */

static int heap_reserve(struct resolver_order_heap *heap, size_t count)
{
	return array_reserve(&heap->items, &heap->capacity, count);
}

/* Moves ITEM down from INDEX until nothing below it is earlier. */
static void heap_sink(struct resolver_order_heap *heap, size_t index,
		      const struct resolver_order_item *item)
{
	for (size_t child; (child = 2 * index + 1) < heap->count; index = child) {
		if (child + 1 < heap->count &&
		    is_before(&heap->items[child + 1], &heap->items[child]))
			child++;
		if (!is_before(&heap->items[child], item))
			break;
		heap->items[index] = heap->items[child];
	}
	heap->items[index] = *item;
}

/* There is room for it. */
static void heap_add(struct resolver_order_heap *heap, const struct resolver_order_item *item)
{
	size_t index = heap->count++;

	while (index && is_before(item, &heap->items[(index - 1) / 2])) {
		heap->items[index] = heap->items[(index - 1) / 2];
		index = (index - 1) / 2;
	}
	heap->items[index] = *item;
}

static void heap_drop(struct resolver_order_heap *heap)
{
	heap->count--;
	if (heap->count)
		heap_sink(heap, 0, &heap->items[heap->count]);
}

/* --- queues ----------------------------------------------------------------------- */

static struct resolver_order_item *queue_at(const struct resolver_order_queue *queue, size_t index)
{
	return &queue->items[(queue->first + index) & (queue->capacity - 1)];
}

static int queue_grow(struct resolver_order_queue *queue)
{
	size_t capacity = queue->capacity ? 2 * queue->capacity : 256;
	struct resolver_order_item *items = calloc(capacity, sizeof(*items));

	if (!items)
		return -ENOMEM;
	for (size_t i = 0; i < queue->count; i++)
		items[i] = *queue_at(queue, i);
	free(queue->items);
	queue->items = items;
	queue->first = 0;
	queue->capacity = capacity;
	return 0;
}

/* --- blocks ----------------------------------------------------------------------- */

static void release_block(struct resolver_order *order, struct resolver_order_block *block)
{
	if (block->of_sideband) {
		free(block);
		return;
	}
	block->next = order->spare;
	order->spare = block;
}

static struct resolver_order_block *new_block(struct resolver_order *order, bool is_sample)
{
	struct resolver_order_block *block = is_sample ? order->spare : NULL;

	if (block)
		order->spare = block->next;
	else
		block = malloc(sizeof(*block) + BLOCK_SIZE);
	if (block) {
		block->used = block->waiting = 0;
		block->of_sideband = !is_sample;
	}
	return block;
}

/* Makes room for SIZE bytes in the queue's block. */
static int reserve_block(struct resolver_order *order, struct resolver_order_queue *queue,
			 size_t size, bool is_sample)
{
	struct resolver_order_block *block = queue->block;

	if (block && !block->waiting)
		block->used = 0;
	if (block && BLOCK_SIZE - block->used >= size)
		return 0;
	/* The old one is released with the last of its records. */
	queue->block = NULL;
	if (block && !block->waiting)
		release_block(order, block);
	queue->block = new_block(order, is_sample);
	return queue->block ? 0 : -ENOMEM;
}

static void *copy_record(struct resolver_order_block *block, const void *record, size_t size)
{
	void *copy = block->bytes + block->used;

	memcpy(copy, record, size);
	block->used += (size + 7) & ~(size_t)7;
	block->waiting++;
	return copy;
}

int resolver_order_init(struct resolver_order *order, size_t sources, struct guest_account *account)
{
	*order = (struct resolver_order){ .sources = sources, .account = account };
	order->queues = calloc(sources, sizeof(*order->queues));
	if (!order->queues || heap_reserve(&order->heads, sources)) {
		resolver_order_free(order);
		return -ENOMEM;
	}
	return 0;
}

static void release(struct resolver_order *order, size_t size)
{
	order->charged -= size;
	guest_account_release(order->account, size);
}

static void free_waiting(struct resolver_order_block *block)
{
	if (!--block->waiting)
		free(block);
}

static void free_queue(struct resolver_order_queue *queue)
{
	/* The queue itself holds the block that it fills. */
	for (size_t i = 0; i < queue->count; i++)
		free_waiting(queue_at(queue, i)->block);
	if (queue->block)
		free_waiting(queue->block);
	free(queue->items);
}

void resolver_order_free(struct resolver_order *order)
{
	struct resolver_order_block *next;

	for (size_t i = 0; order->queues && i < order->sources; i++)
		if (order->queues[i].block)
			order->queues[i].block->waiting++;
	for (size_t i = 0; i < order->strays.count; i++)
		free_waiting(order->strays.items[i].block);
	for (size_t i = 0; order->queues && i < order->sources; i++)
		free_queue(&order->queues[i]);
	for (struct resolver_order_block *block = order->spare; block; block = next) {
		next = block->next;
		free(block);
	}
	release(order, order->charged);
	free(order->queues);
	free(order->heads.items);
	free(order->strays.items);
	*order = (struct resolver_order){ 0 };
}

static void add_in_order(struct resolver_order *order, struct resolver_order_queue *queue,
			 const struct resolver_order_item *item)
{
	if (!queue->count)
		heap_add(&order->heads, item);
	*queue_at(queue, queue->count++) = *item;
}

static int add(struct resolver_order *order, size_t source, uint64_t time, bool is_sample,
	       const void *record, size_t size)
{
	struct resolver_order_queue *queue = &order->queues[source];
	struct resolver_order_item item = { .time = time, .source = source };
	bool stray;

	assert(source < order->sources && size <= RESOLVER_ORDER_RECORD_MAX);
	item.number = order->count | (is_sample ? SAMPLE : 0);
	stray = queue->count && is_before(&item, queue_at(queue, queue->count - 1));
	if (stray ? heap_reserve(&order->strays, order->strays.count + 1)
		  : queue->count == queue->capacity && queue_grow(queue))
		return -ENOMEM;
	if (reserve_block(order, queue, size, is_sample))
		return -ENOMEM;
	item.block = queue->block;
	item.record = copy_record(queue->block, record, size);
	if (stray)
		heap_add(&order->strays, &item);
	else
		add_in_order(order, queue, &item);
	order->count++;
	order->bytes += size;
	return 0;
}

int resolver_order_add(struct resolver_order *order, size_t source, uint64_t time, bool is_sample,
		       const void *record, size_t size)
{
	int error;

	if (is_sample)
		return add(order, source, time, true, record, size);
	if (!guest_account_charge(order->account, size + ITEM_COST))
		return -ENOMEM;
	order->charged += size + ITEM_COST;
	error = add(order, source, time, false, record, size);
	if (error)
		release(order, size + ITEM_COST);
	return error;
}

static bool stray_is_first(const struct resolver_order *order)
{
	return order->strays.count &&
	       (!order->heads.count || is_before(order->strays.items, order->heads.items));
}

const struct resolver_order_item *resolver_order_first(const struct resolver_order *order)
{
	if (stray_is_first(order))
		return order->strays.items;
	return order->heads.count ? order->heads.items : NULL;
}

bool resolver_order_is_sample(const struct resolver_order_item *item)
{
	return item->number & SAMPLE;
}

static void drop_stray(struct resolver_order_heap *strays)
{
	heap_drop(strays);
	if (strays->count || strays->capacity <= KEPT_MAX)
		return;
	free(strays->items);
	*strays = (struct resolver_order_heap){ 0 };
}

static void shrink(struct resolver_order_queue *queue)
{
	if (queue->capacity <= KEPT_MAX)
		return;
	free(queue->items);
	queue->items = NULL;
	queue->first = queue->capacity = 0;
}

static void drop_head(struct resolver_order *order)
{
	struct resolver_order_queue *queue = &order->queues[order->heads.items[0].source];

	queue->first = (queue->first + 1) & (queue->capacity - 1);
	queue->count--;
	if (queue->count) {
		heap_sink(&order->heads, 0, queue_at(queue, 0));
		return;
	}
	heap_drop(&order->heads);
	shrink(queue);
}

void resolver_order_drop(struct resolver_order *order, size_t size)
{
	const struct resolver_order_item *item = resolver_order_first(order);
	struct resolver_order_block *block = item->block;
	bool filling = order->queues[item->source].block == block;

	order->bytes -= size;
	if (!resolver_order_is_sample(item))
		release(order, size + ITEM_COST);
	if (stray_is_first(order))
		drop_stray(&order->strays);
	else
		drop_head(order);
	if (!--block->waiting && !filling)
		release_block(order, block);
}
