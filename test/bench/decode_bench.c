/*
 * decode_bench.c
 *		What the decoder takes for a record, beside the server's own ways, without an executor around them.
 *
 * A library of its own, with the decoder's files compiled into it: test/bench/decode.sh makes and loads it.
 * Each function goes through the records so many times, and returns nanoseconds per record.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "common/jsonapi.h"
#include "access/table.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "portability/instr_time.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "decode.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(bench_decoder);
PG_FUNCTION_INFO_V1(bench_populate);
PG_FUNCTION_INFO_V1(bench_lexer);
PG_FUNCTION_INFO_V1(bench_verify);

typedef struct Records
{
	int			n;
	text	  **texts;
} Records;

/* Instead of the options of a column: its name is its path. */
void
sa_option_column(Relation stream, AttrNumber attnum, SaColumnOptions *out)
{
	memset(out, 0, sizeof(*out));
	out->path = list_make1(pstrdup(NameStr(TupleDescAttr(RelationGetDescr(stream), attnum - 1)->attname)));
}

static Records
get_records(ArrayType *array)
{
	Records		records;
	Datum	   *elements;

	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elements, NULL, &records.n);
	records.texts = palloc(sizeof(text *) * records.n);
	for (int i = 0; i < records.n; i++)
		records.texts[i] = PG_DETOAST_DATUM(elements[i]);
	return records;
}

static float8
since(instr_time start, double n)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, start);
	return INSTR_TIME_GET_DOUBLE(now) * 1e9 / n;
}

/* bench_decoder(stream-like table, records, repetitions): all records are one run. */
Datum
bench_decoder(PG_FUNCTION_ARGS)
{
	Relation	rel = table_open(PG_GETARG_OID(0), AccessShareLock);
	Records		records = get_records(PG_GETARG_ARRAYTYPE_P(1));
	int			repetitions = PG_GETARG_INT32(2);
	SaStreamOptions options = {.format = SA_FORMAT_JSON,.max_record_bytes = 1024 * 1024};
	SaDecoder  *decoder = sa_decode_create(rel, &options, CurrentMemoryContext);
	SaRecord   *in = palloc0(sizeof(SaRecord) * records.n);
	SaDecoded  *out = palloc0(sizeof(SaDecoded) * records.n);
	MemoryContext batch = AllocSetContextCreate(CurrentMemoryContext, "batch", ALLOCSET_DEFAULT_SIZES);
	int			natts = RelationGetDescr(rel)->natts;
	instr_time	start;
	float8		result;

	for (int i = 0; i < records.n; i++)
	{
		in[i].value = VARDATA(records.texts[i]);
		in[i].value_size = VARSIZE(records.texts[i]) - VARHDRSZ;
		out[i].values = palloc(sizeof(Datum) * natts);
		out[i].nulls = palloc(sizeof(bool) * natts);
	}
	INSTR_TIME_SET_CURRENT(start);
	for (int r = 0; r < repetitions; r++)
	{
		MemoryContext oldcxt = MemoryContextSwitchTo(batch);

		sa_decode_records(decoder, in, records.n, out);
		MemoryContextSwitchTo(oldcxt);
		if (out[r % records.n].error != NULL)
			elog(ERROR, "%s", out[r % records.n].error);
		MemoryContextReset(batch);
	}
	result = since(start, (double) records.n * repetitions);
	table_close(rel, AccessShareLock);
	PG_RETURN_FLOAT8(result);
}

/* bench_populate(table, records, repetitions): json_populate_record(NULL::table, record). */
Datum
bench_populate(PG_FUNCTION_ARGS)
{
	Oid			type = get_rel_type_id(PG_GETARG_OID(0));
	Records		records = get_records(PG_GETARG_ARRAYTYPE_P(1));
	int			repetitions = PG_GETARG_INT32(2);
	MemoryContext batch = AllocSetContextCreate(CurrentMemoryContext, "batch", ALLOCSET_DEFAULT_SIZES);
	List	   *args = list_make2(makeNullConst(type, -1, InvalidOid), makeNullConst(JSONOID, -1, InvalidOid));
	FmgrInfo	function;
	LOCAL_FCINFO(call, 3);
	instr_time	start;

	fmgr_info(F_JSON_POPULATE_RECORD, &function);
	fmgr_info_set_expr((Node *) makeFuncExpr(F_JSON_POPULATE_RECORD, type, args, InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL),
					   &function);
	INSTR_TIME_SET_CURRENT(start);
	for (int r = 0; r < repetitions; r++)
	{
		MemoryContext oldcxt = MemoryContextSwitchTo(batch);

		for (int i = 0; i < records.n; i++)
		{
			CHECK_FOR_INTERRUPTS();
			InitFunctionCallInfoData(*call, &function, 3, InvalidOid, NULL, NULL);
			call->args[0].isnull = true;
			call->args[1].value = PointerGetDatum(records.texts[i]);
			call->args[1].isnull = false;
			call->args[2].value = BoolGetDatum(false);
			call->args[2].isnull = false;
			(void) FunctionCallInvoke(call);
			if (i % 100 == 0)
				MemoryContextReset(batch);
		}
		MemoryContextSwitchTo(oldcxt);
		MemoryContextReset(batch);
	}
	PG_RETURN_FLOAT8(since(start, (double) records.n * repetitions));
}

/* bench_lexer(records, repetitions, escapes): the server's parser, with nothing to do. */
Datum
bench_lexer(PG_FUNCTION_ARGS)
{
	Records		records = get_records(PG_GETARG_ARRAYTYPE_P(0));
	int			repetitions = PG_GETARG_INT32(1);
	bool		escapes = PG_GETARG_BOOL(2);
	MemoryContext batch = AllocSetContextCreate(CurrentMemoryContext, "batch", ALLOCSET_DEFAULT_SIZES);
	instr_time	start;

	INSTR_TIME_SET_CURRENT(start);
	for (int r = 0; r < repetitions; r++)
	{
		for (int i = 0; i < records.n; i++)
		{
			MemoryContext oldcxt = MemoryContextSwitchTo(batch);
			JsonLexContext *lex = makeJsonLexContextCstringLen(VARDATA(records.texts[i]), VARSIZE(records.texts[i]) - VARHDRSZ,
															   PG_UTF8, escapes);

			CHECK_FOR_INTERRUPTS();
			if (pg_parse_json(lex, &nullSemAction) != JSON_SUCCESS)
				elog(ERROR, "invalid JSON");
			MemoryContextSwitchTo(oldcxt);
			MemoryContextReset(batch);
		}
	}
	PG_RETURN_FLOAT8(since(start, (double) records.n * repetitions));
}

/* bench_verify(records, repetitions): is it UTF-8? */
Datum
bench_verify(PG_FUNCTION_ARGS)
{
	Records		records = get_records(PG_GETARG_ARRAYTYPE_P(0));
	int			repetitions = PG_GETARG_INT32(1);
	instr_time	start;

	INSTR_TIME_SET_CURRENT(start);
	for (int r = 0; r < repetitions; r++)
	{
		for (int i = 0; i < records.n; i++)
		{
			size_t		size = VARSIZE(records.texts[i]) - VARHDRSZ;

			if (pg_encoding_verifymbstr(PG_UTF8, VARDATA(records.texts[i]), size) != size)
				elog(ERROR, "invalid UTF-8");
		}
	}
	PG_RETURN_FLOAT8(since(start, (double) records.n * repetitions));
}
