// Package trace ties tests to the requirements that they prove.
//
// A test calls [Proves] beside an assertion with the IDs that it shows to hold; a
// text script does so with a line of its own ([Script]). When KEMUDI_TRACE_DIR
// is set (as `make test` does), each citation that was reached in a test that has
// passed leaves one record in that directory, with file and line; `make requirements`
// turns the records into the report docs/requirements/COVERAGE.md, and `make test`
// compares the two. A test that fails, is skipped or is not run leaves nothing, and what a
// parent cites does not count when one of its subtests was skipped, so the
// report shows only what was really executed.
//
// What lives here: the reader of the catalogue in docs/requirements, the
// records, and the report. How citations
// look in each kind of file is the matter of package sites. It is for tests and tools: nothing
// that goes into the program may import it, and it imports no other package of ours
// than the catalogue.
package trace
