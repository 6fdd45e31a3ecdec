/*
 * suggest.c
 *		What delay a watermark is to have, from how far events have been behind.
 *
 * Invariant: what is said errs to the long side: a delay that is suggested would have kept at least the share asked for.
 */
#include "postgres.h"

#include <math.h>

#include "fmgr.h"
#include "funcapi.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "admin.h"
#include "compat.h"
#include "lateness.h"

PG_FUNCTION_INFO_V1(sa_suggest_watermark);
PG_FUNCTION_INFO_V1(sa_watermark_losses);
PG_FUNCTION_INFO_V1(sa_late_report);

static Datum
make_interval(uint64 usecs)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = (int64) Min(usecs, (uint64) PG_INT64_MAX);
	return IntervalPGetDatum(interval);
}

/* suggest_watermark(stream, share): the least delay that would have kept that share of events in time; NULL: no event yet. */
Datum
sa_suggest_watermark(PG_FUNCTION_ARGS)
{
	Oid			stream = PG_GETARG_OID(0);
	float8		share = PG_GETARG_FLOAT8(1);
	SaSketch	sketch;
	int64		total;
	int64		kept = 0;

	sa_admin_check_stream(stream);
	if (isnan(share) || share < 0 || share > 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("share must be between 0 and 1")));
	sa_lateness_read(stream, &sketch);
	total = sa_sketch_total(&sketch);
	if (total == 0)
		PG_RETURN_NULL();
	for (int i = 0; i < SA_SKETCH_CLASSES; i++)
	{
		kept += sketch.counts[i];
		if (kept >= share * total)
			return make_interval(sa_sketch_upper(&sketch, i));
	}
	return make_interval(sketch.greatest);
}

/* One row for each class of a sketch that has something: (upper end, in it, up to it or beyond it, as a share). */
static void
put_classes(ReturnSetInfo *rsinfo, const SaSketch *sketch, bool beyond)
{
	int64		total = sa_sketch_total(sketch);
	int64		so_far = 0;

	for (int i = 0; i < SA_SKETCH_CLASSES; i++)
	{
		Datum		values[4];
		bool		nulls[4] = {0};
		int64		count;

		so_far += sketch->counts[i];
		if (sketch->counts[i] == 0)
			continue;
		count = beyond ? total - so_far : so_far;
		values[0] = make_interval(sa_sketch_upper(sketch, i));
		values[1] = Int64GetDatum(sketch->counts[i]);
		values[2] = Int64GetDatum(count);
		values[3] = Float8GetDatum((float8) count / total);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
}

/* suggest_watermark(stream): delays, and what each would have lost. */
Datum
sa_watermark_losses(PG_FUNCTION_ARGS)
{
	SaSketch	sketch;

	sa_admin_check_stream(PG_GETARG_OID(0));
	InitMaterializedSRF(fcinfo, 0);
	sa_lateness_read(PG_GETARG_OID(0), &sketch);
	put_classes((ReturnSetInfo *) fcinfo->resultinfo, &sketch, true);
	return (Datum) 0;
}

/* late_report(view): how far its late events were behind the watermark. */
Datum
sa_late_report(PG_FUNCTION_ARGS)
{
	SaViewConfig *config = sa_admin_view(PG_GETARG_OID(0));
	SaSketch	sketch;

	InitMaterializedSRF(fcinfo, 0);
	sa_lateness_read(config->view, &sketch);
	put_classes((ReturnSetInfo *) fcinfo->resultinfo, &sketch, false);
	return (Datum) 0;
}
