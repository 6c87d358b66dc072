/* SPDX-License-Identifier: Apache-2.0
 *
 * Defences of the judge that can be switched off, in a test build only
 * (-DCA_WEAKEN, made by test/attacks/weak.sh and never installed): an attack
 * that fails proves something only if the same file is paid where the defence
 * that catches it is missing.
 *
 *   fresh	inputs are new in each iteration
 *   guard	the tolerance shrinks until trivial answers fail
 *   weights	parameters are not the constructor's
 *   families	rounds of other distributions
 *   values	results are compared
 *   memory	inputs and state are as the reference leaves them
 *   stop	the clock runs until every thread has stopped; the capture
 *		follows at once
 *   ops	the dispatch hook's count of operations
 *   launches	each call calls a launcher
 *   witness	time is attributed from outside
 *   symbols	the built object's symbols are audited
 */
#ifndef CA_BASE_WEAKEN_H
#define CA_BASE_WEAKEN_H

#ifdef CA_WEAKEN
/* Whether the environment's CA_WEAKEN (names with commas) has this one. */
int weakened(const char *defence);
#else
#define weakened(defence) 0
#endif

#endif
