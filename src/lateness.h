/*
 * lateness.h
 *		How far events are behind: of each stream behind what came before, of each view behind its watermark.
 */
#ifndef SA_LATENESS_H
#define SA_LATENESS_H

#include "batch.h"
#include "nodes/pg_list.h"
#include "sketch.h"

/* What the worker of a stream has counted and not saved yet; private. */
typedef struct SaLateness SaLateness;

extern SaLateness *sa_lateness_create(MemoryContext parent);

/* A view stands here (list of SaViewPosition): what lies before has been counted before this process began. */
extern void sa_lateness_begin(SaLateness *lateness, List *positions);

/* The events of a batch, which begins at these positions (of one view that takes it); each once per process. */
extern void sa_lateness_count(SaLateness *lateness, const SaBatch *batch, List *positions);

/* Is there something to be saved?  Save it. */
extern bool sa_lateness_is_dirty(const SaLateness *lateness);
extern void sa_lateness_save(SaLateness *lateness, Oid stream);

/* The saved sketch of a stream or a view; all zero where there is none.  Add to it; drop it. */
extern void sa_lateness_read(Oid relid, SaSketch *sketch);
extern void sa_lateness_add(Oid relid, const SaSketch *more);
extern void sa_lateness_forget(Oid relid);

#endif							/* SA_LATENESS_H */
