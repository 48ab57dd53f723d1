package engine

import (
	"cmp"
	"log/slog"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/internal/core"
)

// New returns an engine on a pool, which the caller closes. It does not use the database; [Engine.Prepare] checks the
// database.
//
// Errors: [fferr.ErrInvalidInput] naming the invalid field of cfg.
func New(pool *pgxpool.Pool, cfg Config) (*Engine, error) {
	if pool == nil {
		return nil, core.Invalid("pool", "is nil")
	}
	if err := cfg.Partitions.Validate(); err != nil {
		return nil, core.InvalidBecause("Config.Partitions", err)
	}
	if cfg.Namespace == "" {
		cfg.Namespace = DefaultNamespace
	}
	if err := cfg.Namespace.Validate(); err != nil {
		return nil, core.InvalidBecause("Config.Namespace", err)
	}
	if cfg.MaxPayload == 0 {
		cfg.MaxPayload = DefaultMaxPayload
	}
	if err := cfg.Streams.normalise(); err != nil {
		return nil, err
	}
	if cfg.MaxPayload < 0 {
		return nil, core.Invalid("Config.MaxPayload", "is negative")
	}
	cfg.Retention = cmp.Or(cfg.Retention, DefaultRetention)
	if err := core.CheckRetention("Config.Retention", cfg.Retention); err != nil {
		return nil, err
	}
	cfg.OutboxRetention = cmp.Or(cfg.OutboxRetention, DefaultOutboxRetention)
	if err := core.CheckRetention("Config.OutboxRetention", cfg.OutboxRetention); err != nil {
		return nil, err
	}
	switch {
	case cfg.Listener != nil && cfg.NoListener:
		return nil, core.Invalid("Config.NoListener", "excludes Listener")
	case cfg.Listener != nil && cfg.Listener.ConnConfig == nil:
		return nil, core.Invalid("Config.Listener", "was not made by pgxpool.ParseConfig")
	case cfg.Listener != nil:
		cfg.Listener = cfg.Listener.Copy()
	}
	if slices.ContainsFunc(cfg.Middleware, func(m Middleware) bool { return m == nil }) {
		return nil, core.Invalid("Config.Middleware", "has a nil function")
	}
	cfg.Middleware = slices.Clone(cfg.Middleware)
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	c := core.New(pool, core.Config{
		Partitions: cfg.Partitions, Namespace: cfg.Namespace, Listener: cfg.Listener, NoListener: cfg.NoListener, Now: cfg.Now, Log: cfg.Log, UnsignedResumeGrants: cfg.UnsignedResumeGrants,
		Retention: cfg.Retention, OutboxRetention: cfg.OutboxRetention, Streams: cfg.Streams.limits(), Observer: cfg.Observer,
	})
	e := &Engine{
		handle: core.NewHandle(c),
		c:      c,
		cfg:    cfg,
		shared: &shared{
			awaiting:       newAwaiting(),
			creationMemory: creationMemory{atCreation: creationSteps()},
		},
	}
	c.SetCreator(func(c *core.Core) any { return creator{e.on(c)} })
	c.SetSnapshot(anySnapshotOf)
	return e, nil
}
