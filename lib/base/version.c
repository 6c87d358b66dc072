/* SPDX-License-Identifier: Apache-2.0
 *
 * The version, compiled in from VERSION.
 */
#include "base/opt.h"

const char ca_version[] = CA_VERSION;
