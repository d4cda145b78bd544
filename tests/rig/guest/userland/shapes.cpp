/* SPDX-License-Identifier: Apache-2.0 */
/* shapes CALLS MILLISECONDS: C++ with virtual functions, a template and exceptions. */
#include <algorithm>
#include <stdexcept>
#include <vector>

#include "tests/rig/guest/userland/busy.h"

namespace shapes
{

class shape
{
      public:
	virtual ~shape() = default;
	virtual void draw() const = 0;
};

template <int sides> class polygon : public shape
{
      public:
	BUSY_FUNCTION void draw() const override
	{
		static volatile unsigned long sum;

		for (unsigned long i = 0; i < BUSY_STEPS; i++)
			sum += i;
	}
};

BUSY_FUNCTION static void draw_all(const std::vector<const shape *> &all)
{
	std::for_each(all.begin(), all.end(), [](const shape *one) { BUSY_CALL(one->draw()); });
}

BUSY_FUNCTION static BUSY_SPIN(doubt);

BUSY_FUNCTION static void refuse()
{
	BUSY_CALL(doubt());
	throw std::runtime_error("refused");
}

} // namespace shapes

static const shapes::polygon<3> triangle;
static const shapes::polygon<4> square;

BUSY_FUNCTION static void run_triangle()
{
	BUSY_CALL(shapes::draw_all({ &triangle }));
}

BUSY_FUNCTION static void run_square()
{
	BUSY_CALL(shapes::draw_all({ &square }));
}

BUSY_FUNCTION static void run_refused()
{
	try {
		BUSY_CALL(shapes::refuse());
	} catch (const std::exception &) {
	}
}

int main(int argc, char **argv)
{
	static const struct busy tasks[] = { { "shapes::polygon<3>::draw", run_triangle, 22, 1 },
					     { "shapes::polygon<4>::draw", run_square, 2, 1 },
					     { "shapes::doubt", run_refused, 1, 1 },
					     { nullptr, nullptr, 0, 0 } };

	BUSY_CALL(busy_run("shapes", tasks, argc, argv));
	return 0;
}
