/*
 * sketch.c
 *		How long spans of time are distributed: pure arithmetic.
 *
 * Invariant: the counts are exact, and only the place of a span within its class is forgotten; what is said of a
 * class is its upper end, but never more than the longest span met.
 */
#include "postgres.h"

#include "sketch.h"

uint64
sa_sketch_upper(const SaSketch *sketch, int i)
{
	int			octave = SA_SKETCH_LEAST + ((i - 2) >> SA_SKETCH_PARTS);
	uint64		part = (i - 2) & ((1 << SA_SKETCH_PARTS) - 1);
	uint64		upper;

	if (i == 0)
		return 0;
	if (i == SA_SKETCH_CLASSES - 1)
		return sketch->greatest;
	if (i == 1)
		upper = (UINT64CONST(1) << SA_SKETCH_LEAST) - 1;
	else
		upper = (((UINT64CONST(1) << SA_SKETCH_PARTS) + part + 1) << (octave - SA_SKETCH_PARTS)) - 1;
	return Min(upper, sketch->greatest);
}

int64
sa_sketch_total(const SaSketch *sketch)
{
	int64		total = 0;

	for (int i = 0; i < SA_SKETCH_CLASSES; i++)
		total += sketch->counts[i];
	return total;
}

void
sa_sketch_merge(SaSketch *sketch, const SaSketch *more)
{
	for (int i = 0; i < SA_SKETCH_CLASSES; i++)
		sketch->counts[i] += more->counts[i];
	sketch->greatest = Max(sketch->greatest, more->greatest);
}
