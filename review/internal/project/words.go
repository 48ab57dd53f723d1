package project

// Name is the tool's name in a sentence.
func (t Tool) Name() string {
	switch t {
	case "":
		return "dbmate"
	case Flyway:
		return "Flyway"
	case Atlas:
		return "Atlas"
	case Plain:
		return "psql"
	}
	return string(t)
}

// Alone says where a statement stands that PostgreSQL refuses inside a transaction, for "Write it, …".
func (t Tool) Alone() string {
	switch t {
	case Goose:
		return "in a migration with the line `-- +goose NO TRANSACTION`"
	case GolangMigrate:
		return "alone in a migration: golang-migrate sends a file as one text"
	case Tern:
		return "in a migration with the line `---- tern: disable-tx ----`"
	case Flyway:
		return "in a migration without other statements, or with `executeInTransaction=false` in its .conf file"
	case Atlas:
		return "in a file that begins with the line `-- atlas:txmode none` and an empty one"
	case Plain:
		return "in a file that psql runs without `--single-transaction`"
	case Command:
		return "in a migration that runs outside of a transaction"
	}
	return "alone in a migration whose line reads `-- migrate:up transaction:false`"
}

// WithoutTransaction is the advice against the tool's transaction, for "…, or write it".
func (t Tool) WithoutTransaction() string {
	switch t {
	case Goose:
		return "add the line `-- +goose NO TRANSACTION`"
	case Tern:
		return "add the line `---- tern: disable-tx ----`"
	case Flyway:
		return "write `executeInTransaction=false` into its .conf file"
	case Atlas:
		return "begin the file with the line `-- atlas:txmode none` and an empty one"
	case GolangMigrate, Plain, Command:
		return "run the migration outside of a transaction"
	}
	return "write `-- migrate:up transaction:false`"
}

// Apart is the advice for a statement the tool sends together with others.
func (t Tool) Apart() string {
	if t == Goose {
		return "End each statement with a semicolon and a line, outside of `-- +goose StatementBegin` and `StatementEnd`."
	}
	return "Give it a migration of its own; settings such as `lock_timeout` belong to the role or the connection then."
}

// Down says where the way down stands.
func (t Tool) Down() string {
	switch t {
	case Goose:
		return "below `-- +goose Down`"
	case GolangMigrate:
		return "in the .down.sql file"
	case Tern:
		return "below `---- create above / drop below ----`"
	case Flyway:
		return "in the undo migration"
	}
	return "below migrate:down"
}
