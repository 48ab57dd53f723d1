// Package api compares the Go packages that sqlc generates before and after a change, as their importers see them.
//
// sqlc is the project's own if one of its modules has it as a tool, else the one on PATH. Without any, the committed
// packages are compared. Each side is generated into a folder of its own.
//
// The packages are read by go/types and compared by apidiff. Types of other packages are known by name only, so
// nothing has to be downloaded; a change of such a type is seen only if another one is used.
//
//	rule                   severity  meaning
//	generate-fails         blocking  sqlc refuses the queries on the schema of the change
//	generated-code-stale   risk      the committed package differs from the generated one
//	api-removed            risk      a function, type or field is gone: programs that use it do not compile
//	api-changed            risk      its type is another one
//	api-nullability        risk      its type is another one, as the value may be NULL from now on, or no longer
package api
