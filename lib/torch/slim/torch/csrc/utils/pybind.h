/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <catorch/ops.hpp>
#include <catorch/python.hpp>
