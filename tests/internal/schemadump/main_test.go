package main

import "testing"

func TestNormalise(t *testing.T) {
	const dump = `--
-- PostgreSQL database dump
--

\restrict 3vXq

-- Dumped by pg_dump version 17.6

SET lock_timeout = 0;
SELECT pg_catalog.set_config('search_path', '', false);

--
-- Name: f(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.f() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RETURN NULL;
END;
$$;


CREATE INDEX i ON public.t USING btree (a);

--
-- PostgreSQL database dump complete
--

\unrestrict 3vXq

`
	const want = header + `CREATE FUNCTION f() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RETURN NULL;
END;
$$;

CREATE INDEX i ON t USING btree (a);
`
	if got := string(normalise([]byte(dump))); got != want {
		t.Errorf("normalised:\n%s\nwant:\n%s", got, want)
	}
}
