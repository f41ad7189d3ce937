// Package task owns goroutines: named groups that are cancelled together and
// waited for, and the small timing helpers that go with them.
//
// It is the only place in the product with a go statement, apart from wg.Go in
// a function that waits itself. Anything that knows what the goroutines are for
// belongs to the caller.
package task
