package observe

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/review/report"
)

// mode is a lock mode, from weak to strong. Only some modes exclude each other, see conflicts.
type mode int

const (
	accessShare mode = iota + 1
	rowShare
	rowExclusive
	shareUpdateExclusive
	share
	shareRowExclusive
	exclusive
	accessExclusive
)

var modeNames = [...]string{
	accessShare: "AccessShareLock", rowShare: "RowShareLock", rowExclusive: "RowExclusiveLock",
	shareUpdateExclusive: "ShareUpdateExclusiveLock", share: "ShareLock", shareRowExclusive: "ShareRowExclusiveLock",
	exclusive: "ExclusiveLock", accessExclusive: "AccessExclusiveLock",
}

// words is the mode as spelled in SQL.
func (m mode) words() string {
	return [...]string{
		accessShare: "ACCESS SHARE", rowShare: "ROW SHARE", rowExclusive: "ROW EXCLUSIVE", shareUpdateExclusive: "SHARE UPDATE EXCLUSIVE",
		share: "SHARE", shareRowExclusive: "SHARE ROW EXCLUSIVE", exclusive: "EXCLUSIVE", accessExclusive: "ACCESS EXCLUSIVE",
	}[m]
}

func modeOf(name string) mode { return mode(max(0, slices.Index(modeNames[:], name))) }

// conflicts is PostgreSQL's table: a lock in mode m keeps out a request for n.
func (m mode) conflicts(n mode) bool {
	if m > n {
		m, n = n, m
	}
	switch m {
	case accessShare:
		return n == accessExclusive
	case rowShare:
		return n >= exclusive
	case rowExclusive:
		return n >= share
	case share:
		return n != share
	}
	return m != 0
}

// relation is a table, view, index or sequence that existed before the change.
type relation struct {
	oid, table uint32 // table: of an index
	name       string
	kind       byte // as in pg_class.relkind
	rows       int64
}

func (r relation) isIndex() bool { return r.kind == 'i' || r.kind == 'I' }

// relations are the relations before the change, by OID.
type relations map[uint32]relation

func readRelations(ctx context.Context, conn *pgx.Conn) (relations, error) {
	rows, err := conn.Query(ctx, `
		SELECT c.oid, coalesce(i.indrelid, 0), c.oid::regclass::text, c.relkind::text, c.reltuples::bigint
		FROM pg_class AS c
		JOIN pg_namespace AS n ON n.oid = c.relnamespace
		LEFT JOIN pg_index AS i ON i.indexrelid = c.oid
		WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND c.relkind IN ('r', 'p', 'm', 'i', 'I', 'v', 'S', 'f')`)
	if err != nil {
		return nil, err
	}
	all := relations{}
	var r relation
	var kind string
	if _, err := pgx.ForEachRow(rows, []any{&r.oid, &r.table, &r.name, &kind, &r.rows}, func() error {
		r.kind = kind[0]
		all[r.oid] = r
		return nil
	}); err != nil {
		return nil, err
	}
	for oid, r := range all {
		if r.rows < 0 && (r.kind == 'r' || r.kind == 'm') { // never analysed
			r.rows = 0
			// A materialized view without data refuses.
			_ = conn.QueryRow(ctx, "SELECT count(*) FROM "+r.name).Scan(&r.rows)
		}
		r.rows = max(0, r.rows)
		all[oid] = r
	}
	return all, nil
}

// held are the strongest modes on relations that existed before the change.
type held map[uint32]mode

func (h held) add(more held) {
	for oid, m := range more {
		h[oid] = max(h[oid], m)
	}
}

// readLocks returns the locks a session holds and, with waiting, the locks awaited. ACCESS SHARE, taken by every query,
// is left out unless all is set.
func (rs relations) readLocks(ctx context.Context, conn *pgx.Conn, pid uint32, waiting, all bool) (held, error) {
	rows, err := conn.Query(ctx, `
		SELECT l.relation, l.mode FROM pg_locks AS l
		WHERE l.pid = $1 AND l.locktype = 'relation' AND (l.granted OR $2)
		AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())`, int32(pid), waiting)
	if err != nil {
		return nil, err
	}
	h := held{}
	var oid uint32
	var name string
	_, err = pgx.ForEachRow(rows, []any{&oid, &name}, func() error {
		if _, old := rs[oid]; old && (all || modeOf(name) > accessShare) {
			h[oid] = max(h[oid], modeOf(name))
		}
		return nil
	})
	return h, err
}

// locks lists held locks by name. An index is listed if its lock is stronger than the table's, and keeps readers out.
func (rs relations) locks(h held) []report.Lock {
	var list []report.Lock
	for oid, m := range h {
		r := rs[oid]
		if r.isIndex() && (m < accessExclusive || h[r.table] >= m) {
			continue
		}
		list = append(list, report.Lock{Relation: r.name, Mode: modeNames[m]})
	}
	slices.SortFunc(list, func(a, b report.Lock) int { return strings.Compare(a.Relation, b.Relation) })
	return list
}

// names lists relations, sorted.
func (rs relations) names(oids []uint32) []string {
	var names []string
	for _, oid := range oids {
		names = append(names, rs[oid].name)
	}
	slices.Sort(names)
	return names
}

// counters are a transaction's counters for a table.
type counters struct {
	scans, read, fetched, changed int64
}

// state is the state changed by statements, as seen by their own session.
type state struct {
	files    map[uint32]uint32
	counters map[uint32]counters
	wal      int64 // bytes
}

func (rs relations) readState(ctx context.Context, conn *pgx.Conn) (state, error) {
	s := state{files: map[uint32]uint32{}, counters: map[uint32]counters{}}
	rows, err := conn.Query(ctx, `
		SELECT c.oid, pg_relation_filenode(c.oid) FROM pg_class AS c
		WHERE c.relkind IN ('r', 'm', 'i', 'S') AND c.relnamespace <> 'pg_catalog'::regnamespace AND pg_relation_filenode(c.oid) IS NOT NULL`)
	if err != nil {
		return s, err
	}
	var oid, file uint32
	if _, err := pgx.ForEachRow(rows, []any{&oid, &file}, func() error {
		s.files[oid] = file
		return nil
	}); err != nil {
		return s, fmt.Errorf("read files: %w", err)
	}
	rows, err = conn.Query(ctx, `
		SELECT relid, seq_scan, seq_tup_read, coalesce(idx_tup_fetch, 0), n_tup_upd + n_tup_del
		FROM pg_stat_xact_user_tables WHERE seq_scan > 0 OR idx_scan > 0 OR n_tup_upd + n_tup_del > 0`)
	if err != nil {
		return s, err
	}
	var c counters
	if _, err := pgx.ForEachRow(rows, []any{&oid, &c.scans, &c.read, &c.fetched, &c.changed}, func() error {
		s.counters[oid] = c
		return nil
	}); err != nil {
		return s, fmt.Errorf("read counters: %w", err)
	}
	err = conn.QueryRow(ctx, `SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint`).Scan(&s.wal)
	return s, err
}

// did is the work of a statement on relations that existed before the change.
type did struct {
	rewrote, scanned, changed []uint32
}

// between compares two states. truncated: new files are empty ones.
func (rs relations) between(before, after state, truncated bool) did {
	var d did
	for oid, r := range rs {
		was, is := before.files[oid], after.files[oid]
		if r.kind != 'S' && was != 0 && is != 0 && was != is && !truncated {
			d.rewrote = append(d.rewrote, oid)
		}
		a, b := after.counters[oid], before.counters[oid]
		read, fetched := a.read-b.read, a.fetched-b.fetched
		if (a.scans > b.scans && 2*read >= r.rows) || (r.rows > 0 && fetched >= max(100, r.rows/2)) {
			d.scanned = append(d.scanned, oid)
		}
		if changed := a.changed - b.changed; changed > 0 && 2*changed >= r.rows {
			d.changed = append(d.changed, oid)
		}
	}
	d.rewrote = slices.DeleteFunc(d.rewrote, func(oid uint32) bool { // with their tables
		return rs[oid].isIndex() && slices.Contains(d.rewrote, rs[oid].table)
	})
	for _, list := range [][]uint32{d.rewrote, d.scanned, d.changed} {
		slices.Sort(list)
	}
	return d
}
