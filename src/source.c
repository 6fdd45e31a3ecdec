/*
 * source.c
 *		The list of sources, and what all of them need.
 *
 * Invariant: a type that option.c accepts has its routine here.  No locks, no state.
 */
#include "postgres.h"

#include "compat.h"

#include "source.h"

static const SaSourceRoutine *const source_routines[] = {
	&sa_source_staged,
	&sa_source_kafka,
};

const SaSourceRoutine *
sa_source_routine(const char *type)
{
	for (size_t i = 0; i < lengthof(source_routines); i++)
	{
		if (strcmp(source_routines[i]->type, type) == 0)
			return source_routines[i];
	}
	ereport(ERROR,
			(errcode(ERRCODE_FDW_UNABLE_TO_ESTABLISH_CONNECTION),
			 errmsg("there is no source of type \"%s\"", type)));
	return NULL;				/* keep compiler quiet */
}

SaPosition *
sa_source_find_position(List *positions, const char *topic, int32 partition)
{
	ListCell   *lc;

	foreach(lc, positions)
	{
		SaPosition *position = lfirst(lc);

		if (position->partition == partition && strcmp(position->topic, topic) == 0)
			return position;
	}
	return NULL;
}
