/*
 * codec.c
 *		Values as bytes.
 *
 * Layout of a value: a length (0: NULL, else length + 1; seven bits a byte, least significant first),
 * then that many bytes.  A FIXED value is eight bytes, most significant first.  WORDS begin with a byte
 * that tells whether the array's header has been left out.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "libpq/pqformat.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "codec.h"

/* Types whose bytes mean the same in every cluster; all others go through their functions. */
static bool
kind_of_builtin(Oid type, SaCodecKind *kind)
{
	switch (type)
	{
		case BOOLOID:
		case CHAROID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case FLOAT4OID:
		case FLOAT8OID:
		case CASHOID:
		case DATEOID:
		case TIMEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			*kind = SA_CODEC_FIXED;
			return true;
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
		case BYTEAOID:
		case NUMERICOID:
		case INT2ARRAYOID:
		case INT4ARRAYOID:
		case FLOAT4ARRAYOID:
			*kind = SA_CODEC_BYTES;
			return true;
		case INT8ARRAYOID:
		case FLOAT8ARRAYOID:
			*kind = SA_CODEC_WORDS;
			return true;
		default:
			return false;
	}
}

void
sa_codec_init(SaCodec *codec, Oid type, MemoryContext cxt)
{
	HeapTuple	tuple;
	Form_pg_type form;

	memset(codec, 0, sizeof(*codec));
	get_typlenbyval(type, &codec->typlen, &codec->typbyval);
	codec->element = get_element_type(type);
	if (kind_of_builtin(type, &codec->kind))
		return;
	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for type %u", type);
	form = (Form_pg_type) GETSTRUCT(tuple);
	codec->ioparam = getTypeIOParam(tuple);
	codec->kind = OidIsValid(form->typsend) && OidIsValid(form->typreceive) ? SA_CODEC_BINARY : SA_CODEC_TEXT;
	fmgr_info_cxt(codec->kind == SA_CODEC_BINARY ? form->typsend : form->typoutput, &codec->write, cxt);
	fmgr_info_cxt(codec->kind == SA_CODEC_BINARY ? form->typreceive : form->typinput, &codec->read, cxt);
	ReleaseSysCache(tuple);
}

/* Shapes of the columns of a composite type, and of the type itself. */
static uint64
shape_of_columns(Oid type)
{
	TupleDesc	desc = lookup_rowtype_tupdesc(type, -1);
	uint64		shape = assign_record_type_identifier(type, -1);

	for (int i = 0; i < desc->natts; i++)
		if (!TupleDescAttr(desc, i)->attisdropped)
			shape = hash_combine64(shape, sa_codec_shape(TupleDescAttr(desc, i)->atttypid));
	ReleaseTupleDesc(desc);
	return shape;
}

uint64
sa_codec_shape(Oid type)
{
	check_stack_depth();
	type = getBaseType(type);
	switch (get_typtype(type))
	{
		case TYPTYPE_COMPOSITE:
			return shape_of_columns(type);
		case TYPTYPE_RANGE:
			return sa_codec_shape(get_range_subtype(type));
		case TYPTYPE_MULTIRANGE:
			return sa_codec_shape(get_multirange_range(type));
		default:
			type = get_element_type(type);
			return OidIsValid(type) ? sa_codec_shape(type) : 0;
	}
}

static void
put_length(StringInfo out, uint32 n)
{
	while (n >= 0x80)
	{
		appendStringInfoCharMacro(out, (char) (n | 0x80));
		n >>= 7;
	}
	appendStringInfoCharMacro(out, (char) n);
}

static uint32
get_length(StringInfo in)
{
	uint32		n = 0;
	int			shift = 0;
	uint8		byte;

	do
	{
		byte = (uint8) pq_getmsgbyte(in);
		n |= (uint32) (byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80);
	return n;
}

static void
put_bytes(StringInfo out, const char *bytes, uint32 len)
{
	put_length(out, len + 1);
	appendBinaryStringInfo(out, bytes, len);
}

/* A varlena with this content. */
static Datum
make_varlena(const char *bytes, uint32 len)
{
	struct varlena *v = palloc(len + VARHDRSZ);

	SET_VARSIZE(v, len + VARHDRSZ);
	memcpy(VARDATA(v), bytes, len);
	return PointerGetDatum(v);
}

/* Nearly all such arrays have one dimension from 1 on and no NULL: then the elements say it all. */
static void
put_words(StringInfo out, ArrayType *array)
{
	bool		plain = ARR_NDIM(array) == 1 && ARR_LBOUND(array)[0] == 1 && !ARR_HASNULL(array);
	const char *bytes = plain ? ARR_DATA_PTR(array) : VARDATA(array);
	uint32		len = plain ? ARR_DIMS(array)[0] * sizeof(int64) : VARSIZE(array) - VARHDRSZ;

	put_length(out, len + 2);
	appendStringInfoCharMacro(out, plain ? 1 : 0);
	appendBinaryStringInfo(out, bytes, len);
}

static Datum
get_words(SaCodec *codec, const char *bytes, uint32 len)
{
	uint32		size = ARR_OVERHEAD_NONULLS(1) + len - 1;
	ArrayType  *array;

	if (bytes[0] == 0)
		return make_varlena(bytes + 1, len - 1);
	array = palloc0(size);
	SET_VARSIZE(array, size);
	array->ndim = 1;
	array->elemtype = codec->element;
	ARR_DIMS(array)[0] = (len - 1) / sizeof(int64);
	ARR_LBOUND(array)[0] = 1;
	memcpy(ARR_DATA_PTR(array), bytes + 1, len - 1);
	return PointerGetDatum(array);
}

void
sa_codec_put(SaCodec *codec, StringInfo out, Datum value, bool isnull)
{
	struct varlena *v;

	if (isnull)
	{
		put_length(out, 0);
		return;
	}
	switch (codec->kind)
	{
		case SA_CODEC_FIXED:
			{
				uint64		n = pg_hton64((uint64) value);

				put_bytes(out, (char *) &n, sizeof(n));
				break;
			}
		case SA_CODEC_BYTES:
			v = PG_DETOAST_DATUM_PACKED(value);
			put_bytes(out, VARDATA_ANY(v), VARSIZE_ANY_EXHDR(v));
			break;
		case SA_CODEC_WORDS:
			put_words(out, DatumGetArrayTypeP(value));
			break;
		case SA_CODEC_BINARY:
			{
				bytea	   *sent = SendFunctionCall(&codec->write, value);

				put_bytes(out, VARDATA(sent), VARSIZE(sent) - VARHDRSZ);
				pfree(sent);
				break;
			}
		case SA_CODEC_TEXT:
			{
				char	   *text = OutputFunctionCall(&codec->write, value);

				put_bytes(out, text, strlen(text));
				pfree(text);
				break;
			}
	}
}

Datum
sa_codec_get(SaCodec *codec, StringInfo in, bool *isnull)
{
	uint32		len = get_length(in);
	const char *bytes;
	Datum		result = (Datum) 0;

	*isnull = len == 0;
	if (*isnull)
		return (Datum) 0;
	len--;
	bytes = pq_getmsgbytes(in, len);
	switch (codec->kind)
	{
		case SA_CODEC_FIXED:
			{
				uint64		n;

				memcpy(&n, bytes, sizeof(n));
				result = (Datum) pg_ntoh64(n);
				break;
			}
		case SA_CODEC_BYTES:
			result = make_varlena(bytes, len);
			break;
		case SA_CODEC_WORDS:
			result = get_words(codec, bytes, len);
			break;
		case SA_CODEC_BINARY:
			{
				StringInfoData buf;

				initStringInfo(&buf);
				appendBinaryStringInfo(&buf, bytes, len);
				result = ReceiveFunctionCall(&codec->read, &buf, codec->ioparam, -1);
				pfree(buf.data);
				break;
			}
		case SA_CODEC_TEXT:
			{
				char	   *text = pnstrdup(bytes, len);

				result = InputFunctionCall(&codec->read, text, codec->ioparam, -1);
				pfree(text);
				break;
			}
	}
	return result;
}
