/*
 * sketch.h
 *		How long spans of time are distributed: a histogram in classes that grow by a quarter at most.
 */
#ifndef SA_SKETCH_H
#define SA_SKETCH_H

#include "port/pg_bitutils.h"

#define SA_SKETCH_LEAST 10		/* octave of the first class that is not all that is shorter: 2^10 us, a millisecond */
#define SA_SKETCH_OCTAVES 38	/* from there on: up to nine years */
#define SA_SKETCH_PARTS 2		/* bits: classes of an octave */
#define SA_SKETCH_CLASSES (2 + (SA_SKETCH_OCTAVES << SA_SKETCH_PARTS) + 1)

typedef struct SaSketch
{
	int64		counts[SA_SKETCH_CLASSES];	/* of none at all, of less than a millisecond, ..., of more than all */
	uint64		greatest;		/* the longest span met, microseconds */
} SaSketch;

/* The class of a span, in microseconds. */
static inline int
sa_sketch_class(uint64 span)
{
	int			octave;

	if (span < (UINT64CONST(1) << SA_SKETCH_LEAST))
		return span == 0 ? 0 : 1;
	octave = pg_leftmost_one_pos64(span);
	if (octave >= SA_SKETCH_LEAST + SA_SKETCH_OCTAVES)
		return SA_SKETCH_CLASSES - 1;
	return 2 + ((octave - SA_SKETCH_LEAST) << SA_SKETCH_PARTS) +
		((span >> (octave - SA_SKETCH_PARTS)) & ((1 << SA_SKETCH_PARTS) - 1));
}

static inline void
sa_sketch_add(SaSketch *sketch, uint64 span)
{
	sketch->counts[sa_sketch_class(span)]++;
	if (span > sketch->greatest)
		sketch->greatest = span;
}

/* The longest span of this class that the sketch can have met. */
extern uint64 sa_sketch_upper(const SaSketch *sketch, int i);

extern int64 sa_sketch_total(const SaSketch *sketch);
extern void sa_sketch_merge(SaSketch *sketch, const SaSketch *more);

#endif							/* SA_SKETCH_H */
