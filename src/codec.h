/*
 * codec.h
 *		Values as bytes that outlive a cluster: what the state log is written in.
 *
 * Plain built-in types keep their bytes; everything else goes through the type's send and receive
 * functions (an enum's OID, say, dies with a cluster), or its text form where it has none.
 */
#ifndef SA_CODEC_H
#define SA_CODEC_H

#include "fmgr.h"
#include "lib/stringinfo.h"

typedef enum SaCodecKind
{
	SA_CODEC_FIXED,				/* by value */
	SA_CODEC_BYTES,				/* a plain varlena's content */
	SA_CODEC_WORDS,				/* an array of eight-byte elements, as the states of avg(int4) and stddev(float8) */
	SA_CODEC_BINARY,			/* send and receive */
	SA_CODEC_TEXT				/* output and input */
} SaCodecKind;

typedef struct SaCodec
{
	SaCodecKind kind;
	int16		typlen;
	bool		typbyval;
	Oid			ioparam;
	Oid			element;		/* of an array */
	FmgrInfo	write;
	FmgrInfo	read;
} SaCodec;

/*
 * A number that changes when what values of this type look like in memory does, because the columns of a composite
 * type in it have changed; 0 for most types, which never do.
 */
extern uint64 sa_codec_shape(Oid type);

/* Functions are looked up in cxt. */
extern void sa_codec_init(SaCodec *codec, Oid type, MemoryContext cxt);

/* Append a value (NULL included); sa_codec_get reads it back into CurrentMemoryContext. */
extern void sa_codec_put(SaCodec *codec, StringInfo out, Datum value, bool isnull);
extern Datum sa_codec_get(SaCodec *codec, StringInfo in, bool *isnull);

#endif							/* SA_CODEC_H */
