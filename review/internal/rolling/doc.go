// Package rolling finds the order in which a change can be deployed while old and new programs run side by side. It
// runs the old queries on the new schema, and the new queries on the old one.
//
// Each query runs on both filled databases with the same arguments, in a transaction that is rolled back. A query
// breaks if it fails on the other side's database but not, or differently, on its own, or if parameters or results have
// unexpected types there. Conflicts with existing rows do not count: the arguments come from such rows.
package rolling
