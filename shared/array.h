/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays: growing (the one place that computes a new capacity) and binary search. */
#ifndef KVMSCOPE_SHARED_ARRAY_H
#define KVMSCOPE_SHARED_ARRAY_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

/*
 * Makes room for NEEDED items of SIZE bytes in ITEMS, which holds *CAPACITY of them, and returns
 * the array, which may have moved. Doubles the capacity, so appending is linear. NULL without
 * memory; ITEMS and *CAPACITY are then unchanged. Any thread that owns the array.
 */
static inline void *array_grown(void *items, size_t *capacity, size_t needed, size_t size)
{
	size_t wanted = *capacity ? *capacity : 8;

	if (needed <= *capacity)
		return items;
	if (needed > SIZE_MAX / 4 / size)
		return NULL;
	while (wanted < needed)
		wanted *= 2;
	items = reallocarray(items, wanted, size);
	if (items)
		*capacity = wanted;
	return items;
}

/*
 * array_reserve(&list->items, &list->capacity, list->count + 1): 0, or -ENOMEM with the array as it
 * was. ITEMS is the address of a typed pointer, CAPACITY of a size_t.
 */
#define array_reserve(items, capacity, needed)                                                     \
	({                                                                                         \
		__typeof__(items) array_items_ = (items);                                          \
		size_t *array_capacity_ = (capacity), array_needed_ = (needed);                    \
		void *array_new_ = array_grown(*array_items_, array_capacity_, array_needed_,      \
					       sizeof(**array_items_));                            \
		if (array_new_)                                                                    \
			*array_items_ = array_new_;                                                \
		array_new_ || !array_needed_ ? 0 : -ENOMEM;                                        \
	})

/*
 * array_partition(count, i, items[i].start < address): the number of items, which are sorted, that
 * fulfill CONDITION, an expression of the index I. They are the first ones.
 */
#define array_partition(count, i, condition)                                                       \
	({                                                                                         \
		size_t array_low_ = 0, array_high_ = (count);                                      \
		while (array_low_ < array_high_) {                                                 \
			size_t i = array_low_ + (array_high_ - array_low_) / 2;                    \
			if (condition)                                                             \
				array_low_ = i + 1;                                                \
			else                                                                       \
				array_high_ = i;                                                   \
		}                                                                                  \
		array_low_;                                                                        \
	})

#endif
