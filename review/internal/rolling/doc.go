// Package rolling finds the order in which a change can be deployed while old and new programs run side by side. It
// runs the old queries on the new schema, and the new queries on the old one.
//
// Each query runs on both filled databases with the same arguments, in a transaction that is rolled back. It breaks
// if it fails on the other side's database but not, or differently, on its own, or if parameters or results have
// types there that its program does not expect. Conflicts with existing rows do not count: the arguments are taken
// from such rows.
//
// Rules:
//
//   - rolling-no-order: old programs fail on the new schema, and new programs on the old one. Blocking.
//   - rolling-code-first: old programs fail on the new schema; the migration waits until none runs. A risk.
//   - rolling-schema-first: new programs need the new schema. A note.
//   - rolling-declaration: a migration declares itself usable for programs that fail on it (blocking), or excludes
//     programs that do not (advice), or declares nothing although earlier ones do (advice).
//   - rolling-null: old programs read a column that may be NULL from now on. A risk.
//   - rolling-cached-plan: the types of a query's results change, so that its prepared statement fails once in each
//     session that has it. Advice.
package rolling
