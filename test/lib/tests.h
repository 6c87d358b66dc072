/* SPDX-License-Identifier: Apache-2.0
 *
 * What every unit test includes, in the order that cmocka needs.
 */
#ifndef CA_TEST_TESTS_H
#define CA_TEST_TESTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#define RUN_TESTS(list) \
	cmocka_run_group_tests_name(__FILE__, list, NULL, NULL)

#endif
