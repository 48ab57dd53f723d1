CREATE TABLE public.attic (id bigint PRIMARY KEY, what text NOT NULL);
