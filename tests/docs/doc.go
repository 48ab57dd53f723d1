// Package docs holds the documents to the code: the names in them exist, the code in them compiles and runs, and
// their statements about locks and defaults are true.
//
// The go command does not see that the results depend on files of another module: run these tests with -count=1, as
// make does.
package docs
