package task

import (
	"fmt"
	"runtime/debug"
)

// Contain runs f and turns a panic of it into an error that carries the stack: for
// what is one object's business among many, so that no other suffers from it.
// What f had begun is left as it was; its deferred calls have been made.
func Contain(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}
