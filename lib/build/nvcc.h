/* SPDX-License-Identifier: Apache-2.0
 *
 * nvcc's steps side by side.  For one source it preprocesses and compiles
 * twice, for the host and for the device, one after the other; they depend on
 * each other in the name of the unit alone, which whoever runs both can choose.
 */
#ifndef CA_BUILD_NVCC_H
#define CA_BUILD_NVCC_H

/*
 * A script for `sh -c SCRIPT nvcc NVCC ARGUMENT... SOURCE -o OBJECT`: what nvcc
 * would run (--dryrun), both halves at the same time; says what nvcc says.  An
 * nvcc whose steps are not those that the script knows runs as ever.
 */
extern const char nvcc_script[];

#endif
