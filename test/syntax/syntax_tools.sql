-- The functions of syntax_tools.so; :tools is its path.
CREATE FUNCTION fuzz(text, OUT tried int, OUT accepted int, OUT lost int, OUT different int, OUT told int, OUT taken int, OUT sample text)
	LANGUAGE C STRICT AS :'tools';
CREATE FUNCTION bench(what text, statement text, n int) RETURNS float8 LANGUAGE C STRICT AS :'tools';
