/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <catorch/dispatch.hpp>
#include <catorch/ops.hpp>
#include <catorch/parallel.hpp>
