package rule

// Rules that guess from the text; observations replace them.
var (
	IndexWithoutConcurrently = add(Rule{
		Name: "index-without-concurrently", Severities: []string{"risk"},
		About: "CREATE INDEX or REINDEX stops writers while it reads the table", Guess: true,
	})
	ConstraintWithoutNotValid = add(Rule{
		Name: "constraint-without-not-valid", Severities: []string{"risk"},
		About: "a foreign key or check that is checked at once", Guess: true,
	})
	UniqueWithoutIndex = add(Rule{
		Name: "unique-without-index", Severities: []string{"risk"},
		About: "UNIQUE, PRIMARY KEY or EXCLUDE that builds its index", Guess: true,
	})
	NotNullWithoutCheck = add(Rule{
		Name: "not-null-without-check", Severities: []string{"risk"},
		About: "SET NOT NULL without a validated check (column IS NOT NULL)", Guess: true,
	})
	VolatileDefault = add(Rule{
		Name: "volatile-default", Severities: []string{"risk"},
		About: "a new column whose default differs from row to row", Guess: true,
	})
	GeneratedColumn = add(Rule{
		Name: "generated-column", Severities: []string{"risk"},
		About: "a new column that is computed and stored", Guess: true,
	})
	ColumnTypeChanged = add(Rule{
		Name: "column-type-changed", Severities: []string{"risk"},
		About: "ALTER COLUMN TYPE, which rewrites the table unless the stored form is the same", Guess: true,
	})
	ValidateInSameTransaction = add(Rule{
		Name: "validate-in-same-transaction", Severities: []string{"risk"},
		About: "VALIDATE while the lock of ADD … NOT VALID is held", Guess: true,
	})
	LockWithoutTimeout = add(Rule{
		Name: "lock-without-timeout", Severities: []string{"advice", "risk"},
		About: "a lock that stops programs, without lock_timeout", Guess: true,
	})
)
