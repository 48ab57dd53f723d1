// Package rolling says in which order a change can be deployed, while programs of before and of after it run beside
// each other: it runs the queries of before on the schema of after, and the other way round.
//
// Each query runs on both filled databases with the same arguments, in a transaction that is rolled back. It breaks
// where it fails on the other side's database and not, or otherwise, on its own; or where parameters or results have
// types there that its program does not expect. Conflicts with rows that exist are no such failure: the arguments are
// taken from such rows.
//
// Rules:
//
//   - rolling-no-order: programs of before fail on the new schema, and programs of after on the old one. Blocking.
//   - rolling-code-first: programs of before fail on the new schema; the migration waits until none runs. A risk.
//   - rolling-schema-first: programs of after need the new schema. A note.
//   - rolling-declaration: a migration declares itself usable for programs that fail on it (blocking), or excludes
//     programs that do not (advice), or declares nothing where those before it do (advice).
//   - rolling-null: programs of before read a column that may be NULL from now on. A risk.
//   - rolling-cached-plan: the types of a query's results change, so that its prepared statement fails once in each
//     session that has it. Advice.
package rolling
