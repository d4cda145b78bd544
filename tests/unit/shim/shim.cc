/* SPDX-License-Identifier: Apache-2.0 */
// The only C++ of the project: runs the C test bodies under googletest.
#include "tests/unit/shim/test.h"

#include <execinfo.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

class CTest : public testing::Test {
 public:
  explicit CTest(test_body *body) : body_(body) {}
  void TestBody() override { body_(); }

 private:
  test_body *body_;
};

std::string Format(const char *format, va_list arguments) {
  char text[4096];
  vsnprintf(text, sizeof(text), format, arguments);
  return text;
}

// Ends the program when one test takes too long, and says which: a hang costs
// minutes, and the other tests can be run by another process. Not by SIGALRM
// and setitimer(2), which some tests use themselves.
class Watchdog : public testing::EmptyTestEventListener {
 public:
  Watchdog() {
    sigevent event = {};
    struct sigaction action = {};

    action.sa_handler = End;
    sigaction(SIGRTMAX, &action, nullptr);
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGRTMAX;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer_)) abort();
  }

  void OnTestStart(const testing::TestInfo &test) override {
    const unsigned int seconds = Limit(test.file());

    snprintf(message_, sizeof(message_),
             "\n%s.%s took longer than %u s: the program is ended; its stack:\n",
             test.test_suite_name(), test.name(), seconds);
    Set(seconds);
  }

  void OnTestEnd(const testing::TestInfo &) override { Set(0); }

 private:
  // Those in emulators have timeouts of their own, which are shorter.
  static unsigned int Limit(const char *file) {
    const char *told = getenv("KVMSCOPE_TEST_SECONDS");  // 0: no limit, for a debugger

    if (told) return strtoul(told, nullptr, 10);
    return strstr(file, "tests/rig/") || strstr(file, "tests/e2e/") ? 1400 : 300;
  }

  static void End(int) {
    void *stack[64];

    if (write(STDERR_FILENO, message_, strlen(message_)) >= 0)
      backtrace_symbols_fd(stack, backtrace(stack, 64), STDERR_FILENO);
    _exit(3);
  }

  void Set(unsigned int seconds) {
    itimerspec when = {};

    when.it_value.tv_sec = seconds;
    timer_settime(timer_, 0, &when, nullptr);
  }

  static char message_[1024];
  timer_t timer_;
};

char Watchdog::message_[1024];

}  // namespace

extern "C" void test_register(const char *suite, const char *name, const char *file, int line,
                              test_body *body) {
  testing::RegisterTest(suite, name, nullptr, nullptr, file, line,
                        [body]() -> testing::Test * { return new CTest(body); });
}

extern "C" void test_fail(const char *file, int line, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  GTEST_MESSAGE_AT_(file, line, Format(format, arguments).c_str(),
                    testing::TestPartResult::kNonFatalFailure);
  va_end(arguments);
}

extern "C" void test_skip(const char *file, int line, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  GTEST_MESSAGE_AT_(file, line, Format(format, arguments).c_str(), testing::TestPartResult::kSkip);
  va_end(arguments);
}

int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new Watchdog);
  return RUN_ALL_TESTS();
}
