-- The objects of a database, a property a row: kind, name, the table that it is part of ('' for none), property, value.
-- An object's first row has the property '' and says only that it is there.
WITH extension_member AS (
    SELECT d.classid, d.objid
    FROM pg_depend AS d
    WHERE d.deptype = 'e'
),
space AS (
    SELECT n.oid, n.nspname, CASE n.nspname WHEN 'public' THEN '' ELSE quote_ident(n.nspname) || '.' END AS prefix
    FROM pg_namespace AS n
    WHERE
        n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
        AND n.nspname NOT LIKE 'pg\_temp\_%'
        AND n.nspname NOT LIKE 'pg\_toast\_temp\_%'
        AND (1, n.oid) NOT IN (SELECT 1, m.objid FROM extension_member AS m WHERE m.classid = 'pg_namespace'::regclass)
),
relation AS (
    SELECT c.*, s.prefix || quote_ident(c.relname) AS name
    FROM pg_class AS c
    JOIN space AS s ON s.oid = c.relnamespace
    WHERE NOT EXISTS (SELECT FROM extension_member AS m WHERE m.classid = 'pg_class'::regclass AND m.objid = c.oid)
),
type AS (
    SELECT t.*, s.prefix || quote_ident(t.typname) AS name
    FROM pg_type AS t
    JOIN space AS s ON s.oid = t.typnamespace
    WHERE NOT EXISTS (SELECT FROM extension_member AS m WHERE m.classid = 'pg_type'::regclass AND m.objid = t.oid)
),
routine AS (
    SELECT
        p.*,
        s.prefix || quote_ident(p.proname) || '(' || pg_get_function_identity_arguments(p.oid) || ')' AS name
    FROM pg_proc AS p
    JOIN space AS s ON s.oid = p.pronamespace
    WHERE NOT EXISTS (SELECT FROM extension_member AS m WHERE m.classid = 'pg_proc'::regclass AND m.objid = p.oid)
),
table_like AS (SELECT r.* FROM relation AS r WHERE r.relkind IN ('r', 'p', 'f')),
facts AS (
    SELECT 'schema' AS kind, quote_ident(s.nspname) AS name, '' AS in_table, '' AS property, '' AS value
    FROM space AS s
    WHERE s.nspname <> 'public'

    UNION ALL
    SELECT 'extension', e.extname, '', '', ''
    FROM pg_extension AS e
    WHERE e.extname <> 'plpgsql'

    UNION ALL
    SELECT 'type', t.name, '', f.property, f.value
    FROM type AS t
    CROSS JOIN LATERAL (
        VALUES
            ('', ''),
            ('definition', CASE t.typtype
                WHEN 'e' THEN (
                    SELECT 'enum (' || string_agg(quote_literal(e.enumlabel), ', ' ORDER BY e.enumsortorder) || ')'
                    FROM pg_enum AS e
                    WHERE e.enumtypid = t.oid
                )
                WHEN 'd' THEN
                    'domain over ' || format_type(t.typbasetype, t.typtypmod)
                    || CASE WHEN t.typnotnull THEN ' NOT NULL' ELSE '' END
                    || coalesce(' DEFAULT ' || t.typdefault, '')
                    || coalesce((
                        SELECT string_agg(' ' || pg_get_constraintdef(k.oid), '' ORDER BY k.conname)
                        FROM pg_constraint AS k
                        WHERE k.contypid = t.oid AND k.contype = 'c'
                    ), '')
                WHEN 'c' THEN (
                    SELECT 'composite (' || string_agg(quote_ident(a.attname) || ' ' || format_type(a.atttypid, a.atttypmod), ', ' ORDER BY a.attnum) || ')'
                    FROM pg_attribute AS a
                    WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
                )
                WHEN 'r' THEN (
                    SELECT 'range over ' || format_type(r.rngsubtype, NULL) FROM pg_range AS r WHERE r.rngtypid = t.oid
                )
                ELSE 'base type'
            END)
    ) AS f (property, value)
    WHERE
        t.typtype IN ('e', 'd', 'r')
        OR t.typtype = 'c' AND EXISTS (SELECT FROM pg_class AS c WHERE c.oid = t.typrelid AND c.relkind = 'c')

    UNION ALL
    SELECT 'sequence', r.name, '', f.property, f.value
    FROM relation AS r
    JOIN pg_sequence AS q ON q.seqrelid = r.oid
    CROSS JOIN LATERAL (
        VALUES
            ('', ''),
            ('definition', format(
                '%s START %s INCREMENT %s MINVALUE %s MAXVALUE %s CACHE %s%s',
                format_type(q.seqtypid, NULL), q.seqstart, q.seqincrement, q.seqmin, q.seqmax, q.seqcache,
                CASE WHEN q.seqcycle THEN ' CYCLE' ELSE '' END
            ))
    ) AS f (property, value)
    -- That of an identity column is listed with the column.
    WHERE NOT EXISTS (
        SELECT FROM pg_depend AS d WHERE d.classid = 'pg_class'::regclass AND d.objid = r.oid AND d.deptype = 'i'
    )

    UNION ALL
    SELECT 'table', r.name, r.name, f.property, f.value
    FROM table_like AS r
    LEFT JOIN pg_am AS a ON a.oid = r.relam
    CROSS JOIN LATERAL (
        VALUES
            ('', ''),
            ('kind', CASE r.relpersistence WHEN 'u' THEN 'unlogged ' ELSE '' END || CASE
                WHEN r.relispartition THEN
                    'partition of '
                    || coalesce((SELECT i.inhparent::regclass::text FROM pg_inherits AS i WHERE i.inhrelid = r.oid LIMIT 1), '')
                    || ' ' || pg_get_expr(r.relpartbound, r.oid)
                WHEN r.relkind = 'p' THEN 'table partitioned by ' || pg_get_partkeydef(r.oid)
                WHEN r.relkind = 'f' THEN 'foreign table'
                ELSE 'table'
            END),
            ('storage parameters', (SELECT string_agg(o, ', ' ORDER BY o) FROM unnest(r.reloptions) AS o)),
            ('access method', nullif(a.amname, 'heap')),
            ('row security', concat_ws(' ', CASE WHEN r.relrowsecurity THEN 'enabled' END, CASE WHEN r.relforcerowsecurity THEN 'forced' END)),
            ('replica identity', nullif(r.relreplident::text, 'd')),
            ('privileges', (SELECT string_agg(p::text, ', ' ORDER BY p::text) FROM unnest(r.relacl) AS p))
    ) AS f (property, value)

    UNION ALL
    SELECT 'column', r.name || '.' || quote_ident(a.attname), r.name, f.property, f.value
    FROM table_like AS r
    JOIN pg_attribute AS a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_type AS t ON t.oid = a.atttypid
    LEFT JOIN pg_attrdef AS d ON d.adrelid = r.oid AND d.adnum = a.attnum
    LEFT JOIN pg_collation AS l ON l.oid = a.attcollation AND a.attcollation <> t.typcollation
    CROSS JOIN LATERAL (
        VALUES
            ('', ''),
            ('type', format_type(a.atttypid, a.atttypmod)),
            ('nullability', CASE WHEN a.attnotnull THEN 'NOT NULL' ELSE 'NULL' END),
            ('default', CASE WHEN a.attgenerated = '' THEN pg_get_expr(d.adbin, d.adrelid) END),
            ('generated', CASE
                WHEN a.attgenerated <> '' THEN 'GENERATED ALWAYS AS (' || pg_get_expr(d.adbin, d.adrelid) || ')' || CASE a.attgenerated WHEN 's' THEN ' STORED' ELSE ' VIRTUAL' END
                WHEN a.attidentity = 'a' THEN 'GENERATED ALWAYS AS IDENTITY'
                WHEN a.attidentity = 'd' THEN 'GENERATED BY DEFAULT AS IDENTITY'
            END),
            ('collation', l.collname),
            ('storage', CASE WHEN a.attstorage <> t.typstorage THEN a.attstorage::text END),
            ('compression', nullif(a.attcompression::text, '')),
            ('statistics target', CASE WHEN a.attstattarget >= 0 THEN a.attstattarget::text END),
            ('options', (SELECT string_agg(o, ', ' ORDER BY o) FROM unnest(a.attoptions) AS o)),
            ('privileges', (SELECT string_agg(p::text, ', ' ORDER BY p::text) FROM unnest(a.attacl) AS p))
    ) AS f (property, value)

    UNION ALL
    SELECT 'constraint', quote_ident(k.conname) || ' on ' || r.name, r.name, f.property, f.value
    FROM pg_constraint AS k
    JOIN table_like AS r ON r.oid = k.conrelid
    CROSS JOIN LATERAL (VALUES ('', ''), ('definition', pg_get_constraintdef(k.oid, true))) AS f (property, value)
    -- NOT NULL is listed with the column.
    WHERE k.contype NOT IN ('n', 't')

    UNION ALL
    SELECT 'index', r.name, t.name, f.property, f.value
    FROM relation AS r
    JOIN pg_index AS i ON i.indexrelid = r.oid
    JOIN relation AS t ON t.oid = i.indrelid
    CROSS JOIN LATERAL (
        VALUES
            ('', ''),
            ('definition', replace(pg_get_indexdef(r.oid), ' ON public.', ' ON ')),
            ('state', CASE WHEN NOT i.indisvalid THEN 'invalid' END),
            ('replica identity', CASE WHEN i.indisreplident THEN 'yes' END)
    ) AS f (property, value)
    WHERE NOT EXISTS (SELECT FROM pg_constraint AS k WHERE k.conindid = r.oid AND k.conrelid = i.indrelid AND k.contype IN ('p', 'u', 'x'))

    UNION ALL
    SELECT 'view', r.name, '', f.property, f.value
    FROM relation AS r
    CROSS JOIN LATERAL (
        VALUES
            ('', ''),
            ('definition', CASE r.relkind WHEN 'm' THEN E'materialized\n' ELSE '' END || pg_get_viewdef(r.oid, true)),
            ('options', (SELECT string_agg(o, ', ' ORDER BY o) FROM unnest(r.reloptions) AS o)),
            ('columns', (
                SELECT string_agg(quote_ident(a.attname) || ' ' || format_type(a.atttypid, a.atttypmod), ', ' ORDER BY a.attnum)
                FROM pg_attribute AS a
                WHERE a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
            )),
            ('privileges', (SELECT string_agg(p::text, ', ' ORDER BY p::text) FROM unnest(r.relacl) AS p))
    ) AS f (property, value)
    WHERE r.relkind IN ('v', 'm')

    UNION ALL
    SELECT 'function', p.name, '', f.property, f.value
    FROM routine AS p
    CROSS JOIN LATERAL (
        VALUES
            ('', ''),
            ('result', coalesce(pg_get_function_result(p.oid), 'nothing')),
            -- SET search_path FROM CURRENT keeps the path of the session, with the user's schema or without: there is none.
            ('definition', CASE
                WHEN p.prokind IN ('f', 'p') THEN regexp_replace(pg_get_functiondef(p.oid), $$SET search_path TO '"?[$]user"?', 'public'$$, $$SET search_path TO 'public'$$)
                ELSE 'aggregate or window function'
            END),
            ('privileges', (SELECT string_agg(a::text, ', ' ORDER BY a::text) FROM unnest(p.proacl) AS a))
    ) AS f (property, value)

    UNION ALL
    SELECT 'trigger', quote_ident(g.tgname) || ' on ' || r.name, r.name, f.property, f.value
    FROM pg_trigger AS g
    JOIN relation AS r ON r.oid = g.tgrelid
    CROSS JOIN LATERAL (
        VALUES
            ('', ''),
            ('definition', pg_get_triggerdef(g.oid, true)),
            ('state', CASE g.tgenabled WHEN 'O' THEN NULL WHEN 'D' THEN 'disabled' WHEN 'R' THEN 'replica' ELSE 'always' END)
    ) AS f (property, value)
    WHERE NOT g.tgisinternal

    UNION ALL
    SELECT 'policy', quote_ident(p.polname) || ' on ' || r.name, r.name, f.property, f.value
    FROM pg_policy AS p
    JOIN relation AS r ON r.oid = p.polrelid
    CROSS JOIN LATERAL (
        VALUES
            ('', ''),
            ('definition', concat_ws(
                ' ',
                CASE WHEN p.polpermissive THEN 'permissive' ELSE 'restrictive' END,
                'for ' || p.polcmd::text,
                'to ' || (SELECT string_agg(CASE o WHEN 0 THEN 'everybody' ELSE o::regrole::text END, ', ' ORDER BY o::regrole::text) FROM unnest(p.polroles) AS o),
                'using (' || pg_get_expr(p.polqual, p.polrelid) || ')',
                'with check (' || pg_get_expr(p.polwithcheck, p.polrelid) || ')'
            ))
    ) AS f (property, value)

    UNION ALL
    SELECT 'statistics', s.prefix || quote_ident(x.stxname), '', f.property, f.value
    FROM pg_statistic_ext AS x
    JOIN space AS s ON s.oid = x.stxnamespace
    CROSS JOIN LATERAL (VALUES ('', ''), ('definition', replace(pg_get_statisticsobjdef(x.oid), ' public.', ' '))) AS f (property, value)

    UNION ALL
    SELECT
        'comment',
        i.type || ' ' || replace(i.identity, 'public.', ''),
        CASE WHEN d.classoid = 'pg_class'::regclass THEN coalesce((SELECT r.name FROM relation AS r WHERE r.oid = d.objoid), '') ELSE '' END,
        f.property,
        f.value
    FROM pg_description AS d
    CROSS JOIN LATERAL pg_identify_object(d.classoid, d.objoid, d.objsubid) AS i
    CROSS JOIN LATERAL (VALUES ('', ''), ('definition', d.description)) AS f (property, value)
    WHERE
        EXISTS (SELECT FROM relation AS r WHERE d.classoid = 'pg_class'::regclass AND r.oid = d.objoid)
        OR EXISTS (SELECT FROM routine AS p WHERE d.classoid = 'pg_proc'::regclass AND p.oid = d.objoid)
        OR EXISTS (SELECT FROM type AS t WHERE d.classoid = 'pg_type'::regclass AND t.oid = d.objoid)
        OR EXISTS (SELECT FROM space AS s WHERE d.classoid = 'pg_namespace'::regclass AND s.oid = d.objoid AND s.nspname <> 'public')
        OR EXISTS (SELECT FROM pg_constraint AS k JOIN relation AS r ON r.oid = k.conrelid WHERE d.classoid = 'pg_constraint'::regclass AND k.oid = d.objoid)
        OR EXISTS (SELECT FROM pg_trigger AS g JOIN relation AS r ON r.oid = g.tgrelid WHERE d.classoid = 'pg_trigger'::regclass AND g.oid = d.objoid)
        OR EXISTS (SELECT FROM pg_policy AS p JOIN relation AS r ON r.oid = p.polrelid WHERE d.classoid = 'pg_policy'::regclass AND p.oid = d.objoid)
)
SELECT f.kind, f.name, f.in_table, f.property, coalesce(f.value, '')
FROM facts AS f
ORDER BY f.kind, f.name, f.property
