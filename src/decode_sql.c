/*
 * decode_sql.c
 *		What would become of a record: the decoder, for users to try.
 *
 * Invariant: whoever may SELECT from the stream may try; what is the stream owner's (input functions, domain
 * constraints, casts to json) runs with his rights, as it does when the stream is read, never the caller's.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "decode.h"
#include "owner.h"

PG_FUNCTION_INFO_V1(sa_try_decode);
PG_FUNCTION_INFO_V1(sa_try_decode_all);

/* The stream, which the caller may read and whose records are decoded; to be closed. */
static Relation
open_stream(Oid relid)
{
	char	   *name = get_rel_name(relid);
	AclResult	allowed;

	if (name == NULL)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE), errmsg("relation with OID %u does not exist", relid)));
	if (!sa_option_is_stream(relid))
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("\"%s\" is not a stream", name)));
	allowed = pg_class_aclcheck(relid, GetUserId(), ACL_SELECT);
	if (allowed != ACLCHECK_OK)
		aclcheck_error(allowed, OBJECT_FOREIGN_TABLE, name);
	if (strcmp(sa_option_source(relid), "staged") == 0)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("the records of stream \"%s\" are not decoded", name),
				 errdetail("Its source is \"staged\".")));
	return table_open(relid, AccessShareLock);
}

/* Room for what becomes of n records. */
static SaDecoded *
make_decoded(int n, int natts)
{
	SaDecoded  *decoded = palloc0(sizeof(SaDecoded) * Max(n, 1));

	for (int i = 0; i < n; i++)
	{
		decoded[i].values = palloc(sizeof(Datum) * Max(natts, 1));
		decoded[i].nulls = palloc(sizeof(bool) * Max(natts, 1));
	}
	return decoded;
}

static SaDecoded *
try_records(Relation stream, const SaRecord *records, int n)
{
	SaDecoder  *decoder = sa_decode_create(stream, sa_option_stream(stream), CurrentMemoryContext);
	SaDecoded  *decoded = make_decoded(n, RelationGetDescr(stream)->natts);
	SaOwnerSwitch save;

	sa_decode_enter(&save, RelationGetRelid(stream));
	sa_decode_records(decoder, records, n, decoded);
	sa_owner_leave(&save);
	sa_decode_free(decoder);
	return decoded;
}

static void
set_value(SaRecord *record, bytea *value)
{
	record->topic = "";
	record->timestamp = DT_NOBEGIN;
	record->value = VARDATA_ANY(value);
	record->value_size = VARSIZE_ANY_EXHDR(value);
}

/*
 * The event as json (jsonb would not take all that a column of type json may hold), or the error, into two columns:
 * under the caller's settings, but as the owner, who may have casts.
 */
static void
describe(Relation stream, const SaDecoded *decoded, Datum *values, bool *nulls)
{
	HeapTuple	tuple;
	SaOwnerSwitch save;

	nulls[0] = decoded->error != NULL;
	nulls[1] = decoded->error == NULL;
	if (decoded->error != NULL)
	{
		values[1] = CStringGetTextDatum(decoded->error);
		return;
	}
	tuple = heap_form_tuple(RelationGetDescr(stream), decoded->values, decoded->nulls);
	sa_owner_enter(&save, sa_owner_of(RelationGetRelid(stream)));
	values[0] = DirectFunctionCall1(row_to_json, heap_copy_tuple_as_datum(tuple, RelationGetDescr(stream)));
	sa_owner_leave(&save);
}

/* try_decode(stream, value, key, OUT event, OUT error); a tombstone has neither. */
Datum
sa_try_decode(PG_FUNCTION_ARGS)
{
	SaRecord	record = {0};
	TupleDesc	desc;
	Relation	stream;
	Datum		values[2] = {0};
	bool		nulls[2] = {true, true};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	stream = open_stream(PG_GETARG_OID(0));
	if (!PG_ARGISNULL(1))
	{
		set_value(&record, PG_GETARG_BYTEA_PP(1));
		if (!PG_ARGISNULL(2))
		{
			record.key = VARDATA_ANY(PG_GETARG_BYTEA_PP(2));
			record.key_size = VARSIZE_ANY_EXHDR(PG_GETARG_BYTEA_PP(2));
		}
		describe(stream, try_records(stream, &record, 1), values, nulls);
	}
	table_close(stream, AccessShareLock);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

/* try_decode_all(stream, values): one row for each, with its place in the array; NULLs are left out. */
Datum
sa_try_decode_all(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Relation	stream = open_stream(PG_GETARG_OID(0));
	Datum	   *elements;
	bool	   *isnull;
	int			n;
	int		   *places;
	int			nrecords = 0;
	SaRecord   *records;
	SaDecoded  *decoded;

	InitMaterializedSRF(fcinfo, 0);
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(1), BYTEAOID, -1, false, TYPALIGN_INT, &elements, &isnull, &n);
	records = palloc0(sizeof(SaRecord) * Max(n, 1));
	places = palloc(sizeof(int) * Max(n, 1));
	for (int i = 0; i < n; i++)
	{
		if (isnull[i])
			continue;
		places[nrecords] = i + 1;
		records[nrecords].position = i;
		set_value(&records[nrecords++], DatumGetByteaPP(elements[i]));
	}
	decoded = try_records(stream, records, nrecords);
	for (int i = 0; i < nrecords; i++)
	{
		Datum		values[3] = {Int32GetDatum(places[i])};
		bool		nulls[3] = {false};

		CHECK_FOR_INTERRUPTS();
		describe(stream, &decoded[i], &values[1], &nulls[1]);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	table_close(stream, AccessShareLock);
	return (Datum) 0;
}
